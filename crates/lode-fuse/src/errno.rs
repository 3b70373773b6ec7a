//! Errors of the file system as numbers of the kernel.

use fuser::Errno;
use lode_fs::ErrorKind;

/// The number for an error.
pub(crate) fn errno(error: &lode_fs::Error) -> Errno {
    match error.kind() {
        ErrorKind::NotFound => Errno::ENOENT,
        ErrorKind::Exists => Errno::EEXIST,
        ErrorKind::NotDirectory => Errno::ENOTDIR,
        ErrorKind::IsDirectory => Errno::EISDIR,
        ErrorKind::NotEmpty => Errno::ENOTEMPTY,
        ErrorKind::Full => Errno::ENOSPC,
        ErrorKind::TooLarge => Errno::EFBIG,
        ErrorKind::NameTooLong => Errno::ENAMETOOLONG,
        ErrorKind::Invalid => Errno::EINVAL,
        ErrorKind::NoAttribute => Errno::ENODATA,
        ErrorKind::Range => Errno::ERANGE,
        ErrorKind::TooManyLinks => Errno::EMLINK,
        ErrorKind::NotPermitted => Errno::EPERM,
        ErrorKind::ReadOnly => Errno::EROFS,
        ErrorKind::NoData => Errno::ENXIO,
        ErrorKind::Unsupported => Errno::EOPNOTSUPP,
        ErrorKind::Conflict => Errno::ECANCELED,
        ErrorKind::Ended => Errno::ESTALE,
        ErrorKind::NotOurs | ErrorKind::Damaged | ErrorKind::Failed => Errno::EIO,
    }
}
