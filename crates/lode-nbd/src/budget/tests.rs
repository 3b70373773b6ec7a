use std::thread;

use super::*;

#[test]
fn permits_come_back_when_dropped() {
    let budget = Budget::new(100);
    let first = budget.try_acquire(60).expect("60 of 100 are free");
    assert!(budget.try_acquire(41).is_none());
    drop(first);
    assert!(budget.try_acquire(100).is_some());
    assert_eq!(budget.used(), (0, 100));
}

#[test]
fn a_large_waiter_is_not_starved_by_small_ones() {
    let budget = Budget::new(100);
    let held = budget.try_acquire(50).expect("free");
    let large = thread::spawn({
        let budget = Arc::clone(&budget);
        move || budget.acquire(100, Duration::from_secs(20)).is_some()
    });
    while budget.state.lock().waiting.is_empty() {
        thread::yield_now();
    }
    assert!(budget.try_acquire(1).is_none(), "a small request must queue behind the large one");
    drop(held);
    assert!(large.join().expect("no panic"));
}

#[test]
fn waiting_ends_and_lets_the_next_one_in() {
    let budget = Budget::new(100);
    let held = budget.try_acquire(50).expect("free");
    assert!(budget.acquire(51, Duration::from_millis(20)).is_none());
    assert!(budget.acquire(50, Duration::from_millis(20)).is_some());
    drop(held);
}
