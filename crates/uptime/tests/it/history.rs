//! U8: results and their summaries in the database.

use hob_database::{Address, Database, Options, Read as _, UnixMs, sql};
use hob_testkit::{LIMIT, TestDatabase, every_database};
use hob_uptime::database::monitors;
use hob_uptime::keys::MonitorId;
use hob_uptime::monitor::MonitorSpec;
use hob_uptime::monitor::check::MonitorKind;
use hob_uptime::monitor::history::{self, NewResult, Period};
use hob_uptime::schedule::state::MonitorState;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// 2024-01-15T00:00:00Z
const MIDNIGHT: i64 = 1_705_276_800_000;

async fn open(test_database: &TestDatabase) -> (Database, MonitorId) {
    let address: Address = test_database.url().parse().unwrap();
    let options = Options {
        connect_timeout: LIMIT,
        away_timeout: LIMIT,
        statement_timeout: LIMIT,
        ..Options::default()
    };
    let database = Database::open_with(&address, &[hob_uptime::MIGRATIONS], options).await.unwrap();
    let id = MonitorId::new("shop").unwrap();
    let spec = MonitorSpec::new("Shop", MonitorKind::Tcp, "shop.example:443");
    monitors::add(&database, &id, &spec).await.unwrap();
    (database, id)
}

fn result(id: &MonitorId, at: i64, latency_us: u64, error: Option<&str>) -> NewResult {
    let state = if error.is_none() { MonitorState::Up } else { MonitorState::Suspect };
    let error = error.map(str::to_owned);
    NewResult { monitor: id.clone(), at: UnixMs(at), fence: at.unsigned_abs(), state, latency_us, error }
}

/// A result per minute; every tenth is a failure.
async fn write(database: &Database, id: &MonitorId, from: i64, to: i64) {
    let rows: Vec<NewResult> = (from..to)
        .step_by(60_000)
        .enumerate()
        .map(|(n, at)| {
            let error = (n % 10 == 9).then_some("timeout: no answer");
            result(id, at, 20_000 + 1000 * (n as u64 % 60), error)
        })
        .collect();
    history::write(database, &rows).await.unwrap();
}

every_database! {
    /// U8
    async fn summaries_equal_the_single_results(test_database: TestDatabase) {
        let (database, id) = open(&test_database).await;
        write(&database, &id, MIDNIGHT, MIDNIGHT + 30 * HOUR).await;
        // Writing is idempotent.
        write(&database, &id, MIDNIGHT, MIDNIGHT + 2 * HOUR).await;
        let now = UnixMs(MIDNIGHT + 30 * HOUR + 30 * 60_000);
        let single = history::points(&database, &id, Period::Day, UnixMs(MIDNIGHT + 2 * HOUR - 1)).await.unwrap();
        assert_eq!((single.whole.good, single.whole.bad), (108, 12), "before anything is summarized");
        for _ in 0..2 {
            history::summarize(&database, std::slice::from_ref(&id), now).await.unwrap();
        }
        let week = history::points(&database, &id, Period::Week, now).await.unwrap();
        assert_eq!((week.whole.good, week.whole.bad), (30 * 54, 30 * 6));
        assert_eq!(week.points.len(), 30);
        let p50 = week.whole.p50_ms.unwrap();
        assert!((46.0..54.0).contains(&p50), "{p50}");
        let quarter = history::points(&database, &id, Period::Quarter, now).await.unwrap();
        assert_eq!((quarter.whole.good, quarter.points.len()), (30 * 54, 2), "a day that has ended and the current one");
    }

    /// U8
    async fn late_result_is_added_to_its_hour(test_database: TestDatabase) {
        let (database, id) = open(&test_database).await;
        write(&database, &id, MIDNIGHT, MIDNIGHT + HOUR).await;
        let now = UnixMs(MIDNIGHT + 2 * HOUR);
        history::summarize(&database, std::slice::from_ref(&id), now).await.unwrap();
        let late = result(&id, MIDNIGHT + 30_500, 1000, None);
        history::write(&database, &[late]).await.unwrap();
        history::summarize(&database, std::slice::from_ref(&id), now).await.unwrap();
        let day = history::points(&database, &id, Period::Day, now).await.unwrap();
        assert_eq!(day.whole.good + day.whole.bad, 61);
    }

    /// U8
    async fn old_results_and_summaries_are_deleted(test_database: TestDatabase) {
        let (database, id) = open(&test_database).await;
        write(&database, &id, MIDNIGHT, MIDNIGHT + 3 * HOUR).await;
        let now = UnixMs(MIDNIGHT + 200 * DAY);
        history::summarize(&database, std::slice::from_ref(&id), UnixMs(MIDNIGHT + 26 * HOUR)).await.unwrap();
        history::trim(&database, &hob_uptime::Config::default(), now).await.unwrap();
        let (left,): (u64,) = database.one(sql("SELECT count(*) FROM uptime_result")).await.unwrap();
        let (hours,): (u64,) = database.one(sql("SELECT count(*) FROM uptime_summary WHERE span = 'h'")).await.unwrap();
        let (days,): (u64,) = database.one(sql("SELECT count(*) FROM uptime_summary WHERE span = 'd'")).await.unwrap();
        assert_eq!((left, hours, days), (0, 0, 1));
    }
}
