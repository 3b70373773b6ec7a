//! Labels of units that belong to the file system, on a disk that it shares with volumes and their units.

use crate::{snapshots, transaction};

/// Units with labels that begin so are the file system's: transactions, and snapshots of files.
const OURS: [&str; 2] = [transaction::PREFIX, snapshots::PREFIX];

/// Whether a unit with this label belongs to the file system of its disk, or would: only that begins, commits and ends
/// such units, so nobody else may by their labels.
pub fn is_of_files(label: &str) -> bool {
    OURS.iter().any(|ours| label.starts_with(ours))
}

#[cfg(test)]
mod tests {
    use super::is_of_files;

    #[test]
    fn only_what_begins_so_is_of_files() {
        for (label, ours) in [
            ("files/7", true),
            ("files/", true),
            ("snapshots/noon", true),
            ("files", false),
            ("my-files/7", false),
            ("snapshot/noon", false),
            ("", false),
        ] {
            assert_eq!(is_of_files(label), ours, "{label:?}");
        }
    }
}
