use super::*;

#[test]
fn a_location_gives_back_what_it_was_made_of() {
    for (zone, offset, stored, kind) in [
        (1, 0, 1, Kind::Raw),
        (Location::ZONES_MAX - 1, Location::ZONE_BYTES_MAX - GRANULE, BLOCK_BYTES_MAX, Kind::Packed),
        (77, 4096, 4096, Kind::Raw),
    ] {
        let at = Location::new(zone, offset, stored, kind);
        assert_eq!((at.zone(), at.offset(), at.stored(), at.kind()), (zone, offset, stored, Some(kind)));
        assert!(!at.is_none());
    }
}

#[test]
fn a_step_is_one_footprint_further() {
    let at = Location::new(5, 160, 100, Kind::Raw);
    assert_eq!(at.step(3), Location::new(5, 160 + 3 * 112, 100, Kind::Raw));
}
