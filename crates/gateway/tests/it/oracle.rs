//! Eight instances that ask at once, pause and die at random: no window ever holds more than its limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_gateway::identity::Identity;
use hob_gateway::keys::Keys;
use hob_gateway::{Config, Limiter, Policy};
use hob_testkit::{LIMIT, Layout, Store, TestHouse, budget};
use parking_lot::Mutex;

use crate::kit::{CLIENT, NEEDS};

const INSTANCES: u64 = 8;
const LIMIT_OF_RULE: usize = 30;
const WINDOW: Duration = Duration::from_millis(300);

fn policy(exactness: &str) -> Policy {
    let rule = format!(
        "[[rules]]\nname = \"api\"\nwindows = \"{LIMIT_OF_RULE}/{}ms\"\nalgorithm = \"sliding_log\"\n\
         exactness = \"{exactness}\"\non_store_failure = \"closed\"\n{}",
        WINDOW.as_millis(),
        if exactness == "leased" { "lease = \"60ms\"\n" } else { "" }
    );
    Policy::new(&toml::from_str::<Config>(&rule).unwrap()).unwrap()
}

/// When each request that passed was asked about, and answered.
type Passed = Arc<Mutex<Vec<(Instant, Instant)>>>;

/// Asks as fast as it can; now and then it pauses for longer than a lease, as a stopped process does, or loses all that
/// it holds, as a killed one does.
async fn instance(
    store: hob_hot::Hot,
    layout: Layout,
    policy: Arc<Policy>,
    mut luck: u64,
    passed: Passed,
    until: Instant,
) {
    let fresh = || Limiter::new(store.clone(), Keys::new(layout), &policy);
    let mut limiter = fresh();
    let who = Identity::new(CLIENT).unwrap();
    while Instant::now() < until {
        // A small generator, so that a run can be had again.
        luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        match luck >> 56 {
            0 => limiter = fresh(),
            1 => tokio::time::sleep(Duration::from_millis(80)).await,
            2..40 => tokio::task::yield_now().await,
            _ => {}
        }
        let rule = limiter.rule("api").unwrap();
        let asked = Instant::now();
        if limiter.ask(&rule, &who, 1).await.lets_pass() {
            passed.lock().push((asked, Instant::now()));
        }
    }
}

async fn never_more_than_the_limit(store: &Store, exactness: &str) {
    let policy = Arc::new(policy(exactness));
    let passed = Passed::default();
    let until = Instant::now() + budget(Duration::from_secs(2), Duration::from_secs(30));
    let hot = store.hot().with_deadline(LIMIT);
    let instances = (0..INSTANCES).map(|luck| {
        tokio::spawn(instance(
            hot.clone(),
            store.layout(),
            Arc::clone(&policy),
            luck,
            Arc::clone(&passed),
            until,
        ))
    });
    for ended in futures_util::future::join_all(instances).await {
        ended.unwrap();
    }
    let mut passed = std::mem::take(&mut *passed.lock());
    passed.sort_unstable();
    assert!(passed.len() > LIMIT_OF_RULE, "only {} passed", passed.len());
    for (index, (asked, _)) in passed.iter().enumerate() {
        // Those that certainly fell into the window that begins here, by a clock that counts milliseconds.
        let end = *asked + WINDOW - Duration::from_millis(1);
        let within =
            passed[index..].iter().take_while(|(from, _)| *from <= end).filter(|(_, to)| *to <= end).count();
        assert!(within <= LIMIT_OF_RULE, "{within} in {WINDOW:?}, {exactness}");
    }
}

/// G17: exact limits never admit more, whatever becomes of the instances.
#[test]
fn exact_limits_are_exact_over_instances_that_die() {
    hob_testkit::run(async {
        let house = TestHouse::embedded(NEEDS, Layout::Tagged).await;
        never_more_than_the_limit(house.store(), "exact").await;
        never_more_than_the_limit(&Store::redis().await, "exact").await;
    });
}

/// Leased ones neither, since tokens that were not spent in time are dropped.
#[test]
fn leased_limits_never_overshoot_over_instances_that_die() {
    hob_testkit::run(async {
        let house = TestHouse::embedded(NEEDS, Layout::Tagged).await;
        never_more_than_the_limit(house.store(), "leased").await;
        never_more_than_the_limit(&Store::redis().await, "leased").await;
    });
}
