use proptest::prelude::*;

use super::*;

proptest! {
    /// Whatever the sizes of what comes and what is taken, bytes come out as they went in.
    #[test]
    fn bytes_keep_their_order(steps in proptest::collection::vec((1_usize..64, 1_usize..40, any::<bool>()), 1..200)) {
        let mut inbox = Inbox::new(64);
        let (mut sent, mut taken) = (0_u8, 0_u8);
        for (come, whole, large) in steps {
            let whole = whole.max(inbox.filled().len() + 1);
            if whole <= inbox.capacity() {
                let space = inbox.space(whole);
                prop_assert!(!space.is_empty());
                let count = come.min(space.len());
                for byte in &mut space[..count] {
                    *byte = sent;
                    sent = sent.wrapping_add(1);
                }
                inbox.received(count);
            }
            if large {
                inbox.expect_large();
            }
            let take = come.min(inbox.filled().len());
            for &byte in &inbox.filled()[..take] {
                prop_assert_eq!(byte, taken);
                taken = taken.wrapping_add(1);
            }
            inbox.consume(take);
        }
    }
}

#[test]
fn a_part_at_the_end_moves_to_the_front_when_it_needs_room() {
    let mut inbox = Inbox::new(100);
    inbox.received(90);
    inbox.consume(80);
    assert_eq!(inbox.space(50).len(), 90);
    assert_eq!(inbox.filled().len(), 10);
}
