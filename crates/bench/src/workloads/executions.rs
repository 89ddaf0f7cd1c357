//! Which items were executed, recorded outside the store by the processes that executed them.
//!
//! Each process appends the number of an item to a file of its own before the item does anything else, in one write: what was
//! written stays when the process is killed. The record is independent of the store, so both can be compared.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use anyhow::Context;

/// The file of this process.
static FILE: OnceLock<File> = OnceLock::new();

/// Makes this process record its executions in a file of its own in this folder.
pub(super) fn record_in(folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(std::process::id().to_string());
    let file = File::options().create(true).append(true).open(&path);
    let _ = FILE.set(file.with_context(|| format!("opening {}", path.display()))?);
    Ok(())
}

/// Records that an item is executed now, if this process records. An item that cannot be recorded is not executed.
pub(super) fn note(item: usize) -> std::io::Result<()> {
    let Some(mut file) = FILE.get() else { return Ok(()) };
    file.write_all(&(item as u64).to_le_bytes())
}

/// How often each item from 0 to `n` was executed, by all processes that recorded in a folder.
pub(super) fn read(folder: &Path, n: usize) -> anyhow::Result<Vec<u32>> {
    let mut executed = vec![0_u32; n];
    for entry in std::fs::read_dir(folder).context("reading what was recorded")? {
        let path: PathBuf = entry?.path();
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        for number in bytes.chunks_exact(8) {
            let item = u64::from_le_bytes(number.try_into().expect("eight bytes")) as usize;
            let count = executed.get_mut(item).with_context(|| format!("item {item} was never spawned"))?;
            *count = count.saturating_add(1);
        }
    }
    Ok(executed)
}

/// What the ends of items were reduced to by the parent: enough to tell whether each was counted once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Sum {
    /// How many ends there were.
    pub(super) ends: u64,
    /// The sum of their numbers.
    numbers: u64,
    /// The sum of the squares of their numbers, which wraps: another set of as many numbers with the same sum differs in it,
    /// but by chance.
    squares: u64,
}

impl Sum {
    /// Adds an item.
    pub(super) fn and(self, item: u64) -> Sum {
        Sum {
            ends: self.ends + 1,
            numbers: self.numbers.wrapping_add(item),
            squares: self.squares.wrapping_add(item.wrapping_mul(item)),
        }
    }
}

/// The differences between the record and the ends that the parent counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Compared {
    /// Items that were never executed, or whose end the parent never counted.
    pub(super) lost: usize,
    /// Ends that the parent counted beyond one for each item that was executed.
    pub(super) duplicated: usize,
    /// Executions beyond one for each item: a killed worker's items run again.
    pub(super) rerun: usize,
}

/// Compares how often items were executed with what the parent's reduction says.
pub(super) fn compare(executed: &[u32], sum: Sum) -> Compared {
    let ran = || executed.iter().enumerate().filter(|(_, count)| **count > 0).map(|(item, _)| item as u64);
    let expected = ran().fold(Sum::default(), Sum::and);
    let never = executed.len() - expected.ends as usize;
    let mut compared = Compared {
        lost: never + expected.ends.saturating_sub(sum.ends) as usize,
        duplicated: sum.ends.saturating_sub(expected.ends) as usize,
        rerun: executed.iter().map(|count| count.saturating_sub(1) as usize).sum(),
    };
    // As many ends as items, and not of the same items: at least one is there twice in place of another.
    if sum.ends == expected.ends && sum != expected {
        compared.lost += 1;
        compared.duplicated += 1;
    }
    compared
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(items: &[u64]) -> Sum {
        items.iter().fold(Sum::default(), |sum, item| sum.and(*item))
    }

    #[test]
    fn every_difference_is_found() {
        let found = |executed: &[u32], items: &[u64]| {
            let Compared { lost, duplicated, rerun } = compare(executed, sum(items));
            (lost, duplicated, rerun)
        };
        assert_eq!(found(&[1, 1, 1, 1], &[0, 1, 2, 3]), (0, 0, 0));
        assert_eq!(found(&[1, 3, 1, 1], &[3, 2, 1, 0]), (0, 0, 2), "run again, and counted once");
        assert_eq!(found(&[1, 0, 1, 1], &[0, 2, 3]), (1, 0, 0), "never executed");
        assert_eq!(found(&[1, 1, 1, 1], &[0, 1, 3]), (1, 0, 0), "executed, and not counted");
        assert_eq!(found(&[1, 1, 1, 1], &[0, 1, 2, 3, 3]), (0, 1, 0), "counted twice");
        assert_eq!(found(&[1, 1, 1, 1], &[0, 1, 1, 3]), (1, 1, 0), "one in place of another");
        assert_eq!(found(&[1, 1, 1, 1], &[0, 0, 3, 3]), (1, 1, 0), "although the numbers add up");
        assert_eq!(found(&[1, 0, 1, 1], &[0, 1, 2, 3]), (1, 1, 0), "counted, and never executed");
    }

    #[test]
    fn recorded_executions_are_read_back() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, items) in [("1", &[0_u64, 2][..]), ("2", &[2])] {
            let bytes: Vec<u8> = items.iter().flat_map(|item| item.to_le_bytes()).collect();
            std::fs::write(folder.path().join(name), bytes).expect("written");
        }
        assert_eq!(read(folder.path(), 3).expect("read"), [1, 0, 2]);
        assert!(read(folder.path(), 2).is_err(), "an item that was never spawned");
    }
}
