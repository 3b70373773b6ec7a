//! The file systems that are measured.

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Side {
    /// Lode, written through to the disk's memory.
    #[value(skip)]
    Strict,
    /// Lode, with the kernel's write-back cache.
    #[value(skip)]
    Relaxed,
    /// libfuse's `passthrough_hp` over ext4.
    Passthrough,
    /// ext4 as it is.
    Ext4,
    /// ext4 with all data in its journal.
    Ext4Journal,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl Side {
    /// All of them.
    pub const ALL: [Side; 7] =
        [Side::Strict, Side::Relaxed, Side::Passthrough, Side::Ext4, Side::Ext4Journal, Side::Xfs, Side::Btrfs];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Side::Strict => "lode strict",
            Side::Relaxed => "lode relaxed",
            Side::Passthrough => "passthrough",
            Side::Ext4 => "ext4",
            Side::Ext4Journal => "ext4 data=journal",
            Side::Xfs => "XFS",
            Side::Btrfs => "btrfs",
        }
    }

    /// Whether it is what is judged.
    pub fn is_lode(self) -> bool {
        matches!(self, Side::Strict | Side::Relaxed)
    }

    /// The program that makes one on a device, and its options: nothing is left to be done behind the measurement, and no
    /// space is given back to what lies below.
    pub fn made_by(self) -> (&'static str, &'static [&'static str]) {
        const EXT4: &[&str] = &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];
        match self {
            Side::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
            Side::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"]),
            _ => ("mkfs.ext4", EXT4),
        }
    }

    /// What the kernel calls it, and how it is mounted.
    pub fn mounted_as(self) -> (&'static str, &'static str) {
        match self {
            Side::Xfs => ("xfs", ""),
            Side::Btrfs => ("btrfs", "nodiscard"),
            Side::Ext4Journal => ("ext4", "data=journal"),
            _ => ("ext4", "data=ordered"),
        }
    }
}
