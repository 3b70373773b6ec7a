#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use super::*;
use crate::file::scripted::{Call, Scripted, Step};
use crate::scratch::Scratch;

const MIB: u64 = 1 << 20;

fn options(bytes: u64, force: bool) -> CreateOptions {
    CreateOptions { bytes, force }
}

#[test]
fn a_new_image_is_private_long_and_reserved() {
    for scratch in Scratch::everywhere() {
        let path = scratch.path("image");
        let image = RawImage::create(&path, &options(3 * MIB + 5, false)).unwrap();
        assert_eq!(image.len(), 3 * MIB + 5);
        assert_eq!(image.path(), path);
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.len(), 3 * MIB + 5);
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        assert!(found.blocks() * 512 >= 3 * MIB, "{} blocks are reserved", found.blocks());
        let mut end = [1; 10];
        image.read_at(3 * MIB - 5, &mut end).unwrap();
        assert_eq!(end, [0; 10]);
    }
}

#[test]
fn a_file_with_content_needs_force() {
    let scratch = Scratch::new();
    let path = scratch.path("image");
    std::fs::write(&path, "my thesis").unwrap();
    let error = RawImage::create(&path, &options(MIB, false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotEmpty);
    assert!(error.to_string().contains("found 9 bytes"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"my thesis");
    let image = RawImage::create(&path, &options(MIB, true)).unwrap();
    let mut start = [1; 9];
    image.read_at(0, &mut start).unwrap();
    assert_eq!(start, [0; 9]);
}

#[test]
fn an_empty_file_needs_none() {
    let scratch = Scratch::new();
    let path = scratch.path("image");
    std::fs::write(&path, "").unwrap();
    assert_eq!(RawImage::create(&path, &options(MIB, false)).unwrap().len(), MIB);
}

#[test]
fn an_image_that_is_open_is_not_replaced() {
    let scratch = Scratch::new();
    let path = scratch.path("image");
    let _open = RawImage::create(&path, &options(MIB, false)).unwrap();
    assert_eq!(RawImage::create(&path, &options(MIB, true)).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), MIB);
}

#[test]
fn what_is_no_file_is_refused() {
    let scratch = Scratch::new();
    let (file, link) = (scratch.path("file"), scratch.path("link"));
    std::fs::write(&file, "").unwrap();
    symlink(&file, &link).unwrap();
    let error = RawImage::create(&link, &options(MIB, true)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("symbolic link"), "{error}");
    assert!(RawImage::create(scratch.path("."), &options(MIB, true)).is_err());
    assert_eq!(RawImage::create("/dev/null", &options(MIB, true)).unwrap_err().kind(), ErrorKind::Unsupported);
    let nowhere = RawImage::create(scratch.path("no/image"), &options(MIB, true)).unwrap_err();
    assert_eq!(nowhere.kind(), ErrorKind::NotFound);
}

#[test]
fn no_length_is_refused() {
    let scratch = Scratch::new();
    let error = RawImage::create(scratch.path("image"), &options(0, false)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfBounds);
    assert!(!scratch.path("image").exists());
}

#[test]
fn too_long_a_length_leaves_nothing_behind() {
    let scratch = Scratch::new();
    assert!(RawImage::create(scratch.path("image"), &options(u64::MAX, false)).is_err());
    assert!(!scratch.path("image").exists());
}

#[test]
fn want_of_space_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let path = scratch.path("image");
    let calls = Scripted::default();
    calls.next(Call::Allocate, &[Step::Fail(Errno::NOSPC)]);
    let error = create(&path, &options(MIB, false), calls.boxed()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(error.to_string().contains("reserving 1048576 bytes"), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_file_system_that_cannot_reserve_gives_an_image_of_holes() {
    let scratch = Scratch::new();
    let calls = Scripted::default();
    calls.next(Call::Allocate, &[Step::Fail(Errno::OPNOTSUPP)]);
    let image = create(&scratch.path("image"), &options(MIB, false), calls.boxed()).unwrap();
    assert_eq!(image.len(), MIB);
}

#[test]
fn a_relative_name_without_folder_has_one() {
    sync_directory(Path::new("image")).unwrap();
}
