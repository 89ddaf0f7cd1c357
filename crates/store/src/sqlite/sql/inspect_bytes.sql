-- Bytes of the database file.
select (select page_count from pragma_page_count) * (select page_size from pragma_page_size)
