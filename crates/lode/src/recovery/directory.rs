//! Reads the tables that a root refers to: the directory, the lists and the zones. Sections of the map stay on the
//! medium (R24).

use crate::error::{Error, Result};
use crate::format::Cursor;
use crate::format::object::{DIRECTORY, IMAGE, ObjectRef, SectionEntry};
use crate::format::records::ListMeta;
use crate::format::root::RootImage;
use crate::map::{MapSection, SectionMeta, Slot};
use crate::objects;
use crate::shape::{SECTIONS_MAX, Shape};
use crate::state::{SectionKey, State};
use crate::types::{ListId, Lsn, index};
use crate::zones::Zone;
use lode_media::Medium;

pub(super) fn read_directory(medium: &dyn Medium, shape: &Shape, image: &RootImage, state: &mut State) -> Result<()> {
    let mut maps = Vec::new();
    for (number, page) in image.pages.iter().enumerate() {
        state.directory.pages.push(*page);
        let first_slot = u32::try_from(number).expect("fewer pages than 2^32") * shape.slots_per_page;
        state.directory.slots.resize(index(first_slot + shape.slots_per_page), None);
        if page.is_none() {
            continue;
        }
        let pages = objects::read_whole(medium, page, DIRECTORY, &format!("directory page {number}"))?;
        for (_, bytes) in pages {
            for (entry, deltas) in directory_entries(&bytes).ok_or_else(|| damaged_page(number))? {
                let key = match entry.table {
                    1 => SectionKey::Map(ListId(entry.list), entry.number),
                    2 => SectionKey::Lists(entry.number),
                    3 => SectionKey::Zones(entry.number),
                    _ => return Err(damaged_page(number)),
                };
                if !(first_slot..first_slot + shape.slots_per_page).contains(&entry.slot) {
                    return Err(damaged_page(number));
                }
                state.directory.slots[index(entry.slot)] = Some(key);
                let image = ObjectRef {
                    zone_a: entry.zone_a,
                    offset_a: entry.offset_a,
                    zone_b: entry.zone_b,
                    offset_b: entry.offset_b,
                    bytes: entry.bytes,
                    checksum: entry.checksum,
                };
                let meta = SectionMeta {
                    slot: Some(entry.slot),
                    lsn: Lsn(entry.lsn),
                    dirty: None,
                    whole: false,
                    image,
                    deltas,
                };
                match key {
                    SectionKey::Map(list, section) => maps.push((list, section, meta, entry.leaves)),
                    SectionKey::Lists(page) => {
                        read_lists(medium, &meta, page, state)?;
                        state.list_pages.insert(page, meta);
                    }
                    SectionKey::Zones(page) => {
                        read_zones(medium, shape, &meta, page, state)?;
                        *state.zone_pages.get_mut(index(page)).ok_or_else(|| damaged_page(number))? = meta;
                    }
                }
            }
        }
    }
    let slots = &state.directory.slots;
    state.directory.free =
        (0..slots.len()).filter(|slot| slots[*slot].is_none()).map(|slot| u32::try_from(slot).expect("few")).collect();
    state.zones.sum_up();
    for (list, number, meta, leaves) in maps {
        if u64::from(number) >= SECTIONS_MAX {
            return Err(Error::corrupt("the directory", format!("a section number below {SECTIONS_MAX}"), number));
        }
        let mut section = MapSection::new(shape.section_leaves());
        for (n, slot) in section.slots.iter_mut().enumerate() {
            if leaves >> n & 1 == 1 {
                *slot = Slot::Cold;
            }
        }
        section.meta = meta;
        state.adopt_section(list, number, section);
    }
    Ok(())
}

fn damaged_page(number: usize) -> Error {
    Error::corrupt(format!("directory page {number}"), "section entries", "bytes that are none")
}

/// The entries of a directory page.
fn directory_entries(bytes: &[u8]) -> Option<Vec<(SectionEntry, Vec<ObjectRef>)>> {
    let mut cursor = Cursor::new(bytes);
    let mut entries = Vec::new();
    while !cursor.is_empty() {
        let entry = SectionEntry::decode(cursor.take(SectionEntry::SIZE)?);
        let mut deltas = Vec::new();
        for _ in 0..entry.deltas {
            deltas.push(ObjectRef::decode(cursor.take(ObjectRef::SIZE)?));
        }
        entries.push((entry, deltas));
    }
    Some(entries)
}

fn read_lists(medium: &dyn Medium, meta: &SectionMeta, page: u32, state: &mut State) -> Result<()> {
    let what = format!("page {page} of the lists");
    for (_, bytes) in objects::read_whole(medium, &meta.image, IMAGE, &what)? {
        let mut cursor = Cursor::new(&bytes);
        while !cursor.is_empty() {
            let list =
                ListMeta::decode(&mut cursor).ok_or_else(|| Error::corrupt(&what, "lists", "bytes that are none"))?;
            state.install_list(list);
        }
    }
    Ok(())
}

fn read_zones(medium: &dyn Medium, shape: &Shape, meta: &SectionMeta, page: u32, state: &mut State) -> Result<()> {
    let what = format!("page {page} of the zones");
    for (_, bytes) in objects::read_whole(medium, &meta.image, IMAGE, &what)? {
        let mut cursor = Cursor::new(&bytes);
        let mut number = u64::from(page) * u64::from(shape.zones_per_page);
        while !cursor.is_empty() {
            let zone =
                Zone::decode(&mut cursor).ok_or_else(|| Error::corrupt(&what, "zones", "bytes that are none"))?;
            if zone.live > shape.zone_bytes {
                return Err(Error::corrupt(
                    &what,
                    format!("at most {} live bytes in zone {number}", shape.zone_bytes),
                    zone.live,
                ));
            }
            if number >= u64::from(shape.zones) {
                return Err(Error::corrupt(&what, format!("at most {} zones", shape.zones), "more"));
            }
            state.zones.all[usize::try_from(number).expect("below the number of zones")] = zone;
            number += 1;
        }
    }
    Ok(())
}
