//! Leases on every store, and against a model.

use std::time::Duration;

use hob_store::epoch::{Epoch, Fence, Outcome, mark};
use hob_store::lease::{Hold, Lease, LeaseKeys, Take, check, release, renew, take};
use hob_store::{Clock, Store};
use hob_testkit::{TestStore, budget, every_store};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const HOLD: Duration = Duration::from_secs(60);

struct Tag {
    lease: String,
    marker: String,
}

impl Tag {
    async fn new(test_store: &TestStore, name: &str) -> Self {
        let tag = Self { lease: test_store.key("lease", name), marker: test_store.key("marker", name) };
        mark(test_store.store(), &tag.marker, epoch()).await.unwrap();
        tag
    }

    fn keys(&self) -> LeaseKeys<'_> {
        LeaseKeys { lease: self.lease.as_bytes(), marker: self.marker.as_bytes() }
    }

    async fn take(&self, store: &Store, owner: &str) -> Take {
        match take(store, self.keys(), owner, HOLD, epoch()).await.unwrap() {
            Outcome::Done(answer) => answer,
            lost @ Outcome::Lost { .. } => panic!("{lost:?}"),
        }
    }

    async fn taken(&self, store: &Store, owner: &str) -> Lease {
        match self.take(store, owner).await {
            Take::Taken(lease) => lease,
            held @ Take::Held { .. } => panic!("{held:?}"),
        }
    }
}

fn epoch() -> Epoch {
    Epoch::new(3).unwrap()
}

fn clock() -> Clock {
    Clock::driven(Duration::from_secs(1_800_000_000))
}

every_store! {
    async fn a_lease_has_one_holder_until_its_time_is_up(test_store: TestStore) {
        let (clock, tag) = (clock(), Tag::new(&test_store, "1").await);
        let store = &test_store.store().with_clock(clock.clone());
        let first = tag.taken(store, "a").await;
        assert_eq!(first.until_unix_ms, 1_800_000_060_000);
        clock.advance(Duration::from_millis(59_999));
        assert_eq!(tag.take(store, "b").await, Take::Held { owner: "a".into(), left: Duration::from_millis(1) });
        clock.advance(Duration::from_millis(1));
        let second = tag.taken(store, "b").await;
        assert!(second.fence > first.fence);
    }

    async fn a_late_holder_is_refused_everything(test_store: TestStore) {
        let (clock, tag) = (clock(), Tag::new(&test_store, "1").await);
        let store = &test_store.store().with_clock(clock.clone());
        let first = tag.taken(store, "a").await;
        assert_eq!(check(store, &tag.lease, first.fence).await.unwrap(), Hold::Holds);
        clock.advance(HOLD);
        // Over by its deadline, though nobody has taken it.
        assert_eq!(check(store, &tag.lease, first.fence).await.unwrap(), Hold::Over);
        assert_eq!(renew(store, &tag.lease, first.fence, HOLD).await.unwrap(), None);
        let second = tag.taken(store, "b").await;
        assert_eq!(check(store, &tag.lease, first.fence).await.unwrap(), Hold::Over);
        assert_eq!(release(store, &tag.lease, first.fence).await.unwrap(), Hold::Over);
        assert_eq!(check(store, &tag.lease, second.fence).await.unwrap(), Hold::Holds);
    }

    async fn renewing_keeps_a_lease_and_releasing_frees_it(test_store: TestStore) {
        let (clock, tag) = (clock(), Tag::new(&test_store, "1").await);
        let store = &test_store.store().with_clock(clock.clone());
        let first = tag.taken(store, "a").await;
        for _ in 0..3 {
            clock.advance(HOLD / 2);
            assert!(renew(store, &tag.lease, first.fence, HOLD).await.unwrap().is_some());
        }
        assert_eq!(tag.taken(store, "a").await.fence, first.fence, "asking again is answered again");
        assert_eq!(release(store, &tag.lease, first.fence).await.unwrap(), Hold::Holds);
        assert!(tag.taken(store, "b").await.fence > first.fence);
    }

    /// The store's clock may step back; a lease that was over must not come to life again.
    async fn a_clock_that_steps_back_gives_no_time_back(test_store: TestStore) {
        let (clock, tag) = (clock(), Tag::new(&test_store, "1").await);
        let store = &test_store.store().with_clock(clock.clone());
        let lease = tag.taken(store, "a").await;
        clock.advance(HOLD / 2);
        let renewed = renew(store, &tag.lease, lease.fence, HOLD).await.unwrap().unwrap();
        clock.set(Duration::from_secs(1_700_000_000));
        let again = renew(store, &tag.lease, lease.fence, HOLD).await.unwrap().unwrap();
        assert_eq!(again.until_unix_ms, renewed.until_unix_ms);
    }

    async fn a_lease_on_lost_state_is_not_given_out(test_store: TestStore) {
        let tag = Tag::new(&test_store, "1").await;
        let lease = tag.taken(test_store.store(), "a").await;
        test_store.flush_all().await;
        let answer = take(test_store.store(), tag.keys(), "a", HOLD, epoch()).await.unwrap();
        assert_eq!(answer, Outcome::Lost { found: None });
        assert_eq!(renew(test_store.store(), &tag.lease, lease.fence, HOLD).await.unwrap(), None);
    }

    async fn the_stores_clock_decides_unless_a_test_drives_it(test_store: TestStore) {
        let tag = Tag::new(&test_store, "1").await;
        let lease = tag.taken(test_store.store(), "a").await;
        let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let off = here.abs_diff(Duration::from_millis(lease.until_unix_ms));
        assert!(off <= HOLD + Duration::from_secs(60), "{off:?}");
        let left: i64 = test_store.store().run(hob_store::cmd("PTTL").arg(&tag.lease)).await.unwrap();
        assert!((1..=60_000).contains(&left), "{left}");
    }

    async fn leases_behave_as_the_model_says(test_store: TestStore) {
        let mut runner = TestRunner::new(Config { cases: budget(12, 500), failure_persistence: None, ..Config::default() });
        let steps = prop::collection::vec(step(), 1..40);
        let handle = tokio::runtime::Handle::current();
        let case = std::cell::Cell::new(0);
        tokio::task::block_in_place(|| {
            runner
                .run(&steps, |steps| {
                    case.set(case.get() + 1);
                    handle.block_on(follow(&test_store, case.get(), &steps));
                    Ok(())
                })
                .unwrap_or_else(|error| panic!("{error}"));
        });
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take { owner: u8, hold_ms: u64 },
    Renew { owner: u8, hold_ms: u64 },
    Release { owner: u8 },
    Check { owner: u8 },
    Advance { ms: u64 },
    Rewind { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    // Holds are long in real time, so that only driven time ends them.
    let (owner, hold_ms) = (0..3u8, 60_000..300_000u64);
    prop_oneof![
        4 => (owner.clone(), hold_ms.clone()).prop_map(|(owner, hold_ms)| Step::Take { owner, hold_ms }),
        3 => (owner.clone(), hold_ms).prop_map(|(owner, hold_ms)| Step::Renew { owner, hold_ms }),
        1 => owner.clone().prop_map(|owner| Step::Release { owner }),
        2 => owner.prop_map(|owner| Step::Check { owner }),
        3 => (1..200_000u64).prop_map(|ms| Step::Advance { ms }),
        1 => (1..200_000u64).prop_map(|ms| Step::Rewind { ms }),
    ]
}

/// A lease as one thread would keep it.
#[derive(Default)]
struct Model {
    held: Option<(u8, Fence, u64)>,
    seen_ms: u64,
    fences: [Option<Fence>; 3],
    newest: Option<Fence>,
}

impl Model {
    fn live(&self, now: u64) -> Option<(u8, Fence, u64)> {
        self.held.filter(|(_, _, until)| *until > now)
    }

    fn holds(&self, owner: u8, now: u64) -> bool {
        self.live(now).is_some_and(|(_, fence, _)| Some(fence) == self.fences[usize::from(owner)])
    }
}

async fn follow(test_store: &TestStore, case: u32, steps: &[Step]) {
    let tag = Tag::new(test_store, &format!("case{case}")).await;
    let (mut model, mut clock_ms) = (Model::default(), 1_800_000_000_000u64);
    let clock = Clock::driven(Duration::from_millis(clock_ms));
    let store = test_store.store().with_clock(clock.clone());
    for step in steps {
        let now = clock_ms.max(if model.held.is_some() { model.seen_ms } else { 0 });
        match *step {
            Step::Advance { ms } => clock_ms += ms,
            Step::Rewind { ms } => clock_ms -= ms,
            Step::Take { owner, hold_ms } => {
                let hold = Duration::from_millis(hold_ms);
                let answer = take(&store, tag.keys(), &owner.to_string(), hold, epoch()).await.unwrap();
                match (model.live(now), answer) {
                    (Some((holder, _, until)), Outcome::Done(Take::Held { owner: told, left }))
                        if holder != owner =>
                    {
                        assert_eq!((told, left), (holder.to_string(), Duration::from_millis(until - now)));
                    }
                    (live, Outcome::Done(Take::Taken(lease))) => {
                        assert_eq!(lease.until_unix_ms, now + hold_ms);
                        match live {
                            Some((holder, fence, _)) => assert_eq!((holder, fence), (owner, lease.fence)),
                            None => assert!(Some(lease.fence) > model.newest, "{steps:?}"),
                        }
                        model.newest = Some(lease.fence);
                        model.fences[usize::from(owner)] = Some(lease.fence);
                        model.held = Some((owner, lease.fence, lease.until_unix_ms));
                        model.seen_ms = now;
                    }
                    (live, answer) => panic!("{live:?} {answer:?}"),
                }
            }
            Step::Renew { owner, hold_ms } => {
                let Some(fence) = model.fences[usize::from(owner)] else {
                    continue;
                };
                let answer = renew(&store, &tag.lease, fence, Duration::from_millis(hold_ms)).await.unwrap();
                let expected = model.holds(owner, now).then_some(now + hold_ms);
                assert_eq!(answer.map(|lease| lease.until_unix_ms), expected, "{steps:?}");
                if let (Some(until), Some(held)) = (expected, &mut model.held) {
                    held.2 = until;
                    model.seen_ms = now;
                }
            }
            Step::Release { owner } => {
                let Some(fence) = model.fences[usize::from(owner)] else {
                    continue;
                };
                let held = model.holds(owner, now);
                let expected = if held { Hold::Holds } else { Hold::Over };
                assert_eq!(release(&store, &tag.lease, fence).await.unwrap(), expected, "{steps:?}");
                if held {
                    model.held = None;
                }
            }
            Step::Check { owner } => {
                let Some(fence) = model.fences[usize::from(owner)] else {
                    continue;
                };
                let expected = if model.holds(owner, now) { Hold::Holds } else { Hold::Over };
                assert_eq!(check(&store, &tag.lease, fence).await.unwrap(), expected, "{steps:?}");
            }
        }
        clock.set(Duration::from_millis(clock_ms));
    }
}
