//! What one page of a view may read: so many rows are examined and so many bytes are read, however few of them match. Then the page
//! says where to go on.

use windlass_store::BranchChildPage;

use crate::views::PAGE_BYTES;

/// How many rows a page examines.
pub(crate) const EXAMINED: usize = 10_000;
/// How many rows are examined at once.
const CHUNK: usize = 2_000;
/// How many bytes of payloads are read for a page.
const BYTES: u64 = 64 << 20;

/// What is left of what a page may read.
pub(crate) struct Budget {
    rows: usize,
    bytes: u64,
}

impl Budget {
    /// How many bytes of payloads are read at once.
    pub(crate) const PAGE_BYTES: u64 = PAGE_BYTES;

    /// The budget of a page.
    pub(crate) fn of_page() -> Budget {
        Budget { rows: EXAMINED, bytes: BYTES }
    }

    /// No limit: for a reader that reads everything.
    pub(crate) fn unlimited() -> Budget {
        Budget { rows: usize::MAX, bytes: u64::MAX }
    }

    /// Whether nothing is left.
    pub(crate) fn is_used_up(&self) -> bool {
        self.rows == 0 || self.bytes == 0
    }

    /// How many rows the next read may examine.
    pub(crate) fn examine(&self) -> usize {
        self.rows.clamp(1, CHUNK)
    }

    /// Charges rows that were examined.
    pub(crate) fn charge_rows(&mut self, rows: usize) {
        self.rows = self.rows.saturating_sub(rows);
    }

    /// Charges a read of children of a branch.
    pub(crate) fn charge(&mut self, page: &BranchChildPage) {
        if self.rows < usize::MAX {
            self.charge_rows(page.examined);
            let read: u64 = page.children.iter().map(|child| child.payload_bytes()).sum();
            self.bytes = self.bytes.saturating_sub(read);
        }
    }
}
