//! Leased tokens on the embedded store. The tests set the clocks of the store and of the instance.

use hob_schema::Layout;
use hob_store::limit::{Algorithm, Window};
use hob_store::{Address, Clock};
use proptest::prelude::*;

use super::*;
use crate::keys::{Identifier, Keys};

const HOLD: Duration = Duration::from_secs(1);
const STORE_BEGAN: Duration = Duration::from_secs(1_800_000_000);

/// A store, and an instance whose clock agrees with the store's.
struct World {
    store: Store,
    clock: Clock,
    key: Key,
    begun: Instant,
    now: Duration,
    /// Calls to the store.
    calls: u32,
    debited: u32,
    given_back: u32,
}

impl World {
    fn new() -> Self {
        let clock = Clock::driven(STORE_BEGAN);
        let store = Store::open(&Address::Embedded).unwrap().with_clock(clock.clone());
        let name = crate::limiter::rule::RuleName::new("api").unwrap().key();
        let key = Keys::new(Layout::Plain).limit_state(&name, &Identifier::new("someone").unwrap());
        let (begun, now) = (Instant::now(), Duration::ZERO);
        Self { store, clock, key, begun, now, calls: 0, debited: 0, given_back: 0 }
    }

    fn advance(&mut self, by: Duration) {
        self.now += by;
        self.clock.set(STORE_BEGAN + self.now);
    }

    fn at(&self) -> Instant {
        self.begun + self.now
    }

    /// Borrows a batch as a pool does, with delays on the way to the store and back.
    async fn borrow(
        &mut self,
        tokens: &mut Tokens,
        rule: &Rule,
        hold: Duration,
        to_store: Duration,
        to_instance: Duration,
    ) {
        let (at, max) =
            (self.at(), tokens.next_batch_size.clamp(1, (rule.max_at_once() / MAX_BATCH_DIVISOR).max(1)));
        self.advance(to_store);
        let lent = rule.borrow(&self.store, &self.key, 1..=max).await.unwrap();
        if let Lent::Granted { loan, .. } = &lent {
            self.debited += loan.granted();
        }
        self.advance(to_instance);
        self.calls += 1;
        tokens.receive(lent, BorrowRequest { min: 1, max, at, answered_at: self.at() }, hold);
    }

    async fn give_back(&mut self, batch: Batch, rule: &Rule, hold: Duration) {
        self.calls += 1;
        let unspent = (batch.left, batch.loan);
        self.given_back += rule.give_back(&self.store, &self.key, unspent, hold).await.unwrap();
    }

    /// Returns batches that have reached half of their hold.
    async fn sweep(&mut self, tokens: &mut Tokens, rule: &Rule, hold: Duration) {
        let now = self.at();
        let calls: Vec<Instant> = tokens.batches.iter().map(|batch| batch.requested_at).collect();
        for requested_at in calls.into_iter().filter(|requested_at| now >= *requested_at + hold / 2) {
            if let Some(batch) = tokens.withdraw(requested_at).filter(|batch| batch.left > 0) {
                self.give_back(batch, rule, hold).await;
            }
        }
    }
}

fn rule(algorithm: Algorithm, window: Window) -> Rule {
    Rule::new(algorithm, vec![window]).unwrap()
}

fn per_second(limit: u32) -> Rule {
    rule(Algorithm::Gcra, Window::new(limit, Duration::from_secs(1)))
}

fn is_allowed(decision: &LocalDecision) -> bool {
    matches!(decision, LocalDecision::Decided(inner) | LocalDecision::RunningLow(inner) if inner.is_allowed())
}

#[tokio::test]
async fn tokens_are_dropped_after_their_hold() {
    let (mut world, mut tokens) = (World::new(), Tokens { next_batch_size: 10, ..Tokens::default() });
    world.borrow(&mut tokens, &per_second(100), HOLD, Duration::ZERO, Duration::ZERO).await;
    let at = world.at();
    assert!(is_allowed(&tokens.spend(1, at + HOLD - Duration::from_micros(1), HOLD)));
    assert_eq!(tokens.spend(1, at + HOLD, HOLD), LocalDecision::AskStore);
}

#[tokio::test]
async fn refusal_of_a_large_cost_does_not_refuse_a_small_one() {
    let (mut world, mut tokens) = (World::new(), Tokens::default());
    let lent = per_second(10).borrow(&world.store, &world.key, 8..=8).await.unwrap();
    assert!(matches!(lent, Lent::Granted { .. }));
    let lent = per_second(10).borrow(&world.store, &world.key, 5..=5).await.unwrap();
    let at = world.at();
    tokens.receive(lent, BorrowRequest { min: 5, max: 5, at, answered_at: at }, HOLD);
    assert!(matches!(tokens.spend(5, at, HOLD), LocalDecision::Decided(Decision::Denied { .. })));
    assert_eq!(tokens.spend(1, at, HOLD), LocalDecision::AskStore);
    world.borrow(&mut tokens, &per_second(10), HOLD, Duration::ZERO, Duration::ZERO).await;
    assert!(is_allowed(&tokens.spend(1, at, HOLD)));
}

/// The reset time in later responses is the same point in time.
#[tokio::test]
async fn reset_time_is_stable() {
    let (mut world, mut tokens) = (World::new(), Tokens { next_batch_size: 20, ..Tokens::default() });
    world.borrow(&mut tokens, &per_second(200), HOLD, Duration::ZERO, Duration::ZERO).await;
    let mut resets = Vec::new();
    for ms in [0, 10, 60] {
        let (LocalDecision::Decided(decision) | LocalDecision::RunningLow(decision)) =
            tokens.spend(1, world.at() + Duration::from_millis(ms), HOLD)
        else {
            panic!("there are tokens");
        };
        resets.push(decision.quota().reset_after + Duration::from_millis(ms));
    }
    assert_eq!(resets, [Duration::from_millis(100); 3]);
}

#[test]
fn memory_is_bounded_by_the_number_of_callers() {
    hob_testkit::run(async {
        let store = World::new().store;
        let availability = Arc::new(Availability::new(&store));
        let pools = TokenPools::new(TokenSource { store, availability, rule: per_second(100), hold: HOLD });
        let name = crate::limiter::rule::RuleName::new("api").unwrap().key();
        for number in 0..100_000 {
            let who = Identity::new(&format!("s:{number}")).unwrap();
            let key = || Keys::new(Layout::Plain).limit_state(&name, &who.key());
            pools.callers.lock().get_or_insert(&who, || Arc::new(TokenPool::new(key())));
        }
        assert!(pools.callers() <= MAX_CALLERS);
    });
}

/// A request that waited while another one got no reply from the store does not wait for the store again.
#[tokio::test]
async fn waiting_requests_share_a_failure() {
    let World { store: available, key, .. } = World::new();
    let unreachable = Store::open(&"redis://127.0.0.1:1".parse().unwrap()).unwrap();
    let source = Arc::new(TokenSource {
        store: unreachable.with_deadline(Duration::from_millis(200)),
        // Stays available, so that only the failure itself ends the wait.
        availability: Arc::new(Availability::new(&available)),
        rule: per_second(100),
        hold: HOLD,
    });
    let pool = Arc::new(TokenPool::new(key));
    let requests = (0..20).map(|_| pool.borrow_and_spend(1, &source));
    let answers = futures_util::future::join_all(requests).await;
    assert_eq!(answers, [const { None }; 20]);
    assert_eq!(pool.tokens.lock().failures, 1);
}

/// At most 2 % of the debited tokens are neither spent nor returned, and there are at most 0.02 calls per request: for
/// steady traffic, for bursts, and for traffic above the limit.
#[tokio::test]
async fn busy_caller_wastes_few_tokens_and_few_calls() {
    let hour = Window::new(40_000, Duration::from_secs(3600));
    // Requests per millisecond, in the first `busy_ms` of every 3,000 ms.
    for (what, debited, per_ms, busy_ms) in [
        ("steady", per_second(4000), 1, 3000),
        ("in rushes", rule(Algorithm::SlidingLog, hour), 2, 1200),
        ("too many", per_second(2000), 4, 3000),
    ] {
        let (mut world, mut tokens) = (World::new(), Tokens::default());
        let (mut requests, mut spent) = (0_u32, 0_u32);
        for ms in 0..20_000 {
            world.sweep(&mut tokens, &debited, HOLD).await;
            for _ in 0..if ms % 3000 < busy_ms { per_ms } else { 0 } {
                requests += 1;
                let mut decision = tokens.spend(1, world.at(), HOLD);
                if decision == LocalDecision::AskStore || matches!(decision, LocalDecision::RunningLow(_)) {
                    let waits = decision == LocalDecision::AskStore;
                    world.borrow(&mut tokens, &debited, HOLD, Duration::ZERO, Duration::ZERO).await;
                    if waits {
                        decision = tokens.spend(1, world.at(), HOLD);
                    }
                }
                spent += u32::from(is_allowed(&decision));
            }
            world.advance(Duration::from_millis(1));
        }
        let held: u32 = tokens.left();
        let stranded = world.debited - world.given_back - spent - held;
        assert!(stranded * 50 <= world.debited, "{what}: {stranded} of {} stranded", world.debited);
        assert!(world.calls * 50 <= requests, "{what}: {} questions for {requests} requests", world.calls);
        assert!(what != "too many" || spent >= 20 * 2000 * 95 / 100, "only {spent} passed of 40,000");
        assert!(what == "too many" || spent == requests, "{what}: {spent} of {requests} passed");
    }
}

/// Instances that borrow in turn, with delays on the way to the store and back, and return tokens now and then. Returns
/// the times at which requests passed.
async fn run(debited: &Rule, hold: Duration, steps: &[Step]) -> Vec<Duration> {
    let mut world = World::new();
    let mut instances: Vec<Tokens> = (0..4).map(|_| Tokens::default()).collect();
    let mut passed = Vec::new();
    for Step { instance, pause_ms, to_store_ms, to_instance_ms, sweeps } in steps {
        world.advance(Duration::from_millis(*pause_ms));
        let tokens = &mut instances[*instance];
        if *sweeps {
            world.sweep(tokens, debited, hold).await;
        }
        match tokens.spend(1, world.at(), hold) {
            LocalDecision::Decided(decision) | LocalDecision::RunningLow(decision) => {
                passed.extend(decision.is_allowed().then_some(world.now));
            }
            LocalDecision::AskStore => {
                let [to_store, to_instance] =
                    [to_store_ms, to_instance_ms].map(|ms| Duration::from_millis(*ms));
                world.borrow(tokens, debited, hold, to_store, to_instance).await;
                passed.extend(is_allowed(&tokens.spend(1, world.at(), hold)).then_some(world.now));
            }
        }
    }
    passed
}

#[derive(Clone, Debug)]
struct Step {
    instance: usize,
    pause_ms: u64,
    to_store_ms: u64,
    to_instance_ms: u64,
    sweeps: bool,
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    // Bursts with pauses between them, so that tokens are held during a pause.
    let pause_ms = prop_oneof![20 => Just(0_u64), 1 => 20_u64..140];
    let step = (0_usize..4, pause_ms, 0_u64..2, 0_u64..2, any::<bool>()).prop_map(
        |(instance, pause_ms, to_store_ms, to_instance_ms, sweeps)| Step {
            instance,
            pause_ms,
            to_store_ms,
            to_instance_ms,
            sweeps,
        },
    );
    prop::collection::vec(step, 1..400)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(hob_testkit::budget(60, 2000)))]

    /// A log with windows longer by the hold never exceeds the limit in any window.
    #[test]
    fn leased_log_never_exceeds_the_limit(steps in any_steps(), hold_ms in 1_u64..150) {
        let (limit, window, hold) = (20, Duration::from_millis(200), Duration::from_millis(hold_ms));
        let debited = rule(Algorithm::SlidingLog, Window::new(limit, window + hold));
        let passed = block_on(run(&debited, hold, &steps));
        for (index, from) in passed.iter().enumerate() {
            let within = passed[index..].iter().take_while(|at| **at < *from + window).count();
            prop_assert!(within <= limit as usize, "{within} within {window:?} of {from:?}");
        }
    }

    /// GCRA with a burst smaller by rate × hold never exceeds burst + rate × time.
    #[test]
    fn leased_rate_never_exceeds_the_limit(steps in any_steps(), hold_ms in 1_u64..150) {
        let (each, burst, hold) = (Duration::from_millis(10), 30_u32, Duration::from_millis(hold_ms));
        let meanwhile = u32::try_from(hold_ms.div_ceil(10)).unwrap();
        let window = Window::new(100, Duration::from_secs(1)).with_burst(burst - meanwhile);
        let passed = block_on(run(&rule(Algorithm::Gcra, window), hold, &steps));
        for (first, from) in passed.iter().enumerate() {
            for (last, to) in passed.iter().enumerate().skip(first) {
                let max = u128::from(burst) + (*to - *from).as_millis() / each.as_millis();
                prop_assert!((last - first + 1) as u128 <= max, "{} from {from:?} to {to:?}", last - first + 1);
            }
        }
    }
}
