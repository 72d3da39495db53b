//! Markers and fences on every store.

use hob_store::epoch::{Epoch, Mark, Outcome, mark, next_fence};
use hob_testkit::every_store;

fn epoch(number: u32) -> Epoch {
    Epoch::new(number).unwrap()
}

fn done<T: std::fmt::Debug>(outcome: Outcome<T>) -> T {
    match outcome {
        Outcome::Done(value) => value,
        Outcome::Lost { .. } => panic!("{outcome:?}"),
    }
}

every_store! {
    async fn fences_grow_within_an_epoch_and_from_one_to_the_next(test_store: TestStore) {
        let (store, marker) = (test_store.store(), test_store.key("marker", "1"));
        let mut last = None;
        for number in [7, 8, 2_097_151] {
            assert_eq!(mark(store, &marker, epoch(number)).await.unwrap(), Mark::Marked);
            assert_eq!(mark(store, &marker, epoch(number)).await.unwrap(), Mark::Already);
            for n in 1..=3 {
                let fence = done(next_fence(store, &marker, epoch(number)).await.unwrap());
                assert_eq!(fence.get(), (u64::from(number) << 32) + n);
                assert!(Some(fence) > last);
                last = Some(fence);
            }
        }
    }

    async fn a_tag_without_marker_or_of_another_epoch_is_lost(test_store: TestStore) {
        let (store, marker) = (test_store.store(), test_store.key("marker", "1"));
        assert_eq!(next_fence(store, &marker, epoch(1)).await.unwrap(), Outcome::Lost { found: None });
        mark(store, &marker, epoch(2)).await.unwrap();
        let lost = Outcome::Lost { found: Some(epoch(2)) };
        assert_eq!(next_fence(store, &marker, epoch(1)).await.unwrap(), lost);
        assert_eq!(next_fence(store, &marker, epoch(3)).await.unwrap(), lost);
        test_store.flush_all().await;
        assert_eq!(next_fence(store, &marker, epoch(2)).await.unwrap(), Outcome::Lost { found: None });
    }

    async fn a_marker_never_goes_back(test_store: TestStore) {
        let (store, marker) = (test_store.store(), test_store.key("marker", "1"));
        mark(store, &marker, epoch(10)).await.unwrap();
        assert_eq!(mark(store, &marker, epoch(9)).await.unwrap(), Mark::Stale { found: epoch(10) });
        assert_eq!(done(next_fence(store, &marker, epoch(10)).await.unwrap()).epoch(), 10);
    }
}

#[test]
fn an_epoch_leaves_room_for_exact_fences() {
    assert!(Epoch::new(2_097_152).is_err());
    assert_eq!(Epoch::MAX.get(), 2_097_151);
}
