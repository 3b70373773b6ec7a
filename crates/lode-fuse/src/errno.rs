//! Errors of the file system as numbers of the kernel.

use lode_fs::ErrorKind;
use rustix::io::Errno;

/// The number for an error.
pub(crate) fn errno(error: &lode_fs::Error) -> Errno {
    match error.kind() {
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::Exists => Errno::EXIST,
        ErrorKind::NotDirectory => Errno::NOTDIR,
        ErrorKind::IsDirectory => Errno::ISDIR,
        ErrorKind::NotEmpty => Errno::NOTEMPTY,
        ErrorKind::Full => Errno::NOSPC,
        ErrorKind::TooLarge => Errno::FBIG,
        ErrorKind::NameTooLong => Errno::NAMETOOLONG,
        ErrorKind::Invalid => Errno::INVAL,
        ErrorKind::NoAttribute => Errno::NODATA,
        ErrorKind::Range => Errno::RANGE,
        ErrorKind::TooManyLinks => Errno::MLINK,
        ErrorKind::NotPermitted => Errno::PERM,
        ErrorKind::ReadOnly => Errno::ROFS,
        ErrorKind::NoData => Errno::NXIO,
        ErrorKind::Unsupported => Errno::OPNOTSUPP,
        ErrorKind::Conflict => Errno::CANCELED,
        ErrorKind::Ended => Errno::STALE,
        ErrorKind::NotOurs | ErrorKind::Damaged | ErrorKind::Failed => Errno::IO,
    }
}
