//! Recipes that are tests: how programs that talk to PostgreSQL through sqlx or diesel submit jobs in their own
//! transactions, with the SQL function `submit` alone. There is no code here; read `tests/`.
