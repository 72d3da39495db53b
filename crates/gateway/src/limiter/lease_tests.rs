//! Leased tokens by a clock that the tests drive, with a model in place of the store.

use proptest::prelude::*;

use super::*;

const HOLD: Duration = Duration::from_secs(1);

fn quota() -> Quota {
    Quota { limit: 100, remaining: 0, reset_after: Duration::ZERO }
}

fn asked(granted: u32, cost: u32, at: Instant) -> Asked {
    Asked { cost, granted, at, answered_at: at }
}

fn is_allowed(decision: Option<Decision>) -> bool {
    decision.is_some_and(|decision| decision.is_allowed())
}

#[test]
fn tokens_are_dropped_when_their_time_is_up() {
    let (mut tokens, at) = (Tokens::default(), Instant::now());
    tokens.receive(Decision::Allowed(quota()), asked(10, 1, at), HOLD);
    assert!(is_allowed(tokens.spend(1, at + HOLD - Duration::from_micros(1), HOLD)));
    assert_eq!(tokens.spend(1, at + HOLD, HOLD), None);
}

#[test]
fn batches_grow_with_demand_and_shrink_without() {
    let (mut tokens, begun) = (Tokens::default(), Instant::now());
    for (round, size) in [1, 2, 4, 8, 16].into_iter().enumerate() {
        assert_eq!(tokens.want.max(1), size, "round {round}");
        tokens.receive(Decision::Allowed(quota()), asked(size, 1, begun), HOLD);
        for _ in 0..size {
            assert!(is_allowed(tokens.spend(1, begun, HOLD)));
        }
        assert_eq!(tokens.spend(1, begun, HOLD), None);
    }
    tokens.receive(Decision::Allowed(quota()), asked(32, 1, begun), HOLD);
    tokens.spend(3, begun, HOLD);
    assert_eq!(tokens.spend(1, begun + HOLD, HOLD), None);
    assert_eq!(tokens.want, 3);
}

#[test]
fn a_refusal_of_much_says_nothing_about_little() {
    let (mut tokens, now) = (Tokens::default(), Instant::now());
    let denied = Decision::Denied { quota: quota(), retry_after: HOLD };
    tokens.receive(denied, asked(5, 5, now), HOLD);
    assert!(tokens.spend(5, now, HOLD).is_some_and(|decision| !decision.is_allowed()));
    assert_eq!(tokens.spend(1, now, HOLD), None);
}

#[test]
fn made_up_callers_do_not_fill_the_memory() {
    let pools = Pools::default();
    for number in 0..100_000 {
        pools.callers.lock().get_or_insert(&Identity::new(&format!("s:{number}")).unwrap(), Arc::default);
    }
    assert!(pools.callers() <= MOST_CALLERS);
}

/// At most 2 % of what is debited is never spent, and at most 0.02 questions are asked per request, at 1,000 requests
/// a second for twenty seconds.
#[test]
fn little_is_stranded_and_little_is_asked_on_a_hot_key() {
    let (mut tokens, begun) = (Tokens::default(), Instant::now());
    let (mut debited, mut spent, mut questions) = (0, 0, 0);
    for request in 0..20_000 {
        let now = begun + Duration::from_millis(request);
        if tokens.spend(1, now, HOLD).is_none() {
            let granted = tokens.want.max(1);
            tokens.receive(Decision::Allowed(quota()), asked(granted, 1, now), HOLD);
            (debited, questions) = (debited + granted, questions + 1);
            assert!(is_allowed(tokens.spend(1, now, HOLD)));
        }
        spent += 1;
    }
    assert!(debited - spent <= spent / 50, "{debited} debited, {spent} spent");
    assert!(questions <= spent / 50, "{questions} questions");
}

/// The store as far as leases are concerned: a log of debits, or a backlog.
enum Model {
    Log { limit: usize, window: Duration, debits: Vec<Duration> },
    Gcra { each: Duration, burst: u32, gone: Duration },
}

impl Model {
    fn debit(&mut self, now: Duration, want: u32) -> bool {
        match self {
            Self::Log { limit, window, debits } => {
                let held = debits.iter().filter(|at| **at + *window > now).count();
                let fits = held + want as usize <= *limit;
                debits.extend(std::iter::repeat_n(now, if fits { want as usize } else { 0 }));
                fits
            }
            Self::Gcra { each, burst, gone } => {
                let backlog = gone.saturating_sub(now) + *each * want;
                let fits = backlog <= *each * *burst;
                if fits {
                    *gone = now + backlog;
                }
                fits
            }
        }
    }
}

/// Instances that ask in turn, each with a delay before the store hears it and another before the answer is heard.
/// Answers with when each request passed.
fn run(model: &mut Model, hold: Duration, steps: &[(usize, u64, u64, u64)]) -> Vec<Duration> {
    let begun = Instant::now();
    let mut instances: Vec<Tokens> = (0..4).map(|_| Tokens::default()).collect();
    let (mut now, mut passed) = (Duration::ZERO, Vec::new());
    for (instance, pause_ms, there_ms, back_ms) in steps {
        now += Duration::from_millis(*pause_ms);
        let tokens = &mut instances[*instance];
        if let Some(decision) = tokens.spend(1, begun + now, hold) {
            passed.extend(decision.is_allowed().then_some(now));
            continue;
        }
        let (at, granted) = (begun + now, tokens.want.clamp(1, 16));
        now += Duration::from_millis(*there_ms);
        let fits = model.debit(now, granted);
        now += Duration::from_millis(*back_ms);
        let decision = if fits {
            Decision::Allowed(quota())
        } else {
            Decision::Denied { quota: quota(), retry_after: Duration::from_millis(1) }
        };
        tokens.receive(decision, Asked { cost: 1, granted, at, answered_at: begun + now }, hold);
        passed.extend(is_allowed(tokens.spend(1, begun + now, hold)).then_some(now));
    }
    passed
}

fn any_steps() -> impl Strategy<Value = Vec<(usize, u64, u64, u64)>> {
    // Rushes with lulls between them: what was taken in a rush is spent after the lull, if it may be.
    let pause_ms = prop_oneof![20 => Just(0_u64), 1 => 20_u64..140];
    prop::collection::vec((0_usize..4, pause_ms, 0_u64..2, 0_u64..2), 1..400)
}

proptest! {
    /// A log whose windows are longer by the hold: never more than the limit in any window.
    #[test]
    fn a_leased_log_never_overshoots(steps in any_steps(), hold_ms in 1_u64..150) {
        let (limit, window, hold) = (20, Duration::from_millis(200), Duration::from_millis(hold_ms));
        let mut model = Model::Log { limit, window: window + hold, debits: Vec::new() };
        let passed = run(&mut model, hold, &steps);
        for (index, from) in passed.iter().enumerate() {
            let within = passed[index..].iter().take_while(|at| **at < *from + window).count();
            prop_assert!(within <= limit, "{within} within {window:?} of {from:?}");
        }
    }

    /// GCRA whose burst is smaller by what passes in the hold: never more than burst + rate × time in any time.
    #[test]
    fn a_leased_rate_never_overshoots(steps in any_steps(), hold_ms in 1_u64..150) {
        let (each, burst, hold) = (Duration::from_millis(10), 30_u32, Duration::from_millis(hold_ms));
        let meanwhile = u32::try_from(hold_ms.div_ceil(10)).unwrap();
        let mut model = Model::Gcra { each, burst: burst - meanwhile, gone: Duration::ZERO };
        let passed = run(&mut model, hold, &steps);
        for (first, from) in passed.iter().enumerate() {
            for (last, to) in passed.iter().enumerate().skip(first) {
                let most = u128::from(burst) + (*to - *from).as_millis() / each.as_millis();
                prop_assert!((last - first + 1) as u128 <= most, "{} from {from:?} to {to:?}", last - first + 1);
            }
        }
    }
}
