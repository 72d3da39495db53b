//! U3 U5 U6 U8: incidents in the database, each exactly once, with their events.

use std::time::Duration;

use hob_database::outbox::{self, Replay};
use hob_database::{Address, Database, Options, PageRequest, UnixMs};
use hob_testkit::{LIMIT, TestDatabase, every_database};
use hob_uptime::database::{incidents, maintenance, monitors};
use hob_uptime::incident::{
    self, AcknowledgeOutcome, Alerting, AnnotateOutcome, Filter, INCIDENTS, IncidentEvent, IncidentEventKind,
    Resolution,
};
use hob_uptime::keys::MonitorId;
use hob_uptime::monitor::check::MonitorKind;
use hob_uptime::monitor::maintenance::MaintenanceSpec;
use hob_uptime::monitor::{Monitor, MonitorSpec};
use hob_uptime::schedule::record::{Alerted, PendingChange};
use hob_uptime::schedule::state::IncidentChange;

async fn open(test_database: &TestDatabase) -> Database {
    let address: Address = test_database.url().parse().unwrap();
    let options = Options {
        connect_timeout: LIMIT,
        away_timeout: LIMIT,
        statement_timeout: LIMIT,
        ..Options::default()
    };
    Database::open_with(&address, &[hob_uptime::MIGRATIONS], options).await.unwrap()
}

async fn monitor(database: &Database, with: impl FnOnce(&mut MonitorSpec)) -> Monitor {
    let mut spec = MonitorSpec::new("Shop", MonitorKind::Tcp, "shop.example:443");
    spec.channels = vec!["ops".to_owned()];
    with(&mut spec);
    let added = monitors::add(database, &MonitorId::new("shop").unwrap(), &spec).await.unwrap();
    added.expect("a free id")
}

fn change(monitor: &Monitor, change: IncidentChange, fence: u64) -> PendingChange {
    PendingChange {
        id: monitor.id.clone(),
        fence: hob_store::epoch::Fence::from_u64(fence),
        change,
        at_ms: 1_000_000 + fence * 1000,
        first_failure_ms: 990_000,
        failures: 3,
        class: Some("timeout".to_owned()),
        message: "no answer in 10 s".to_owned(),
    }
}

/// The events of a kind, after the relay has numbered them.
async fn events(database: &Database, kind: IncidentEventKind) -> Vec<IncidentEvent> {
    let mut relay = outbox::Relay::new(database, outbox::Retention::default());
    let publish = |_| async { Ok::<_, std::convert::Infallible>(()) };
    while !matches!(relay.run_round(publish).await.unwrap(), outbox::RelayRound::Idle) {}
    relay.release().await.unwrap();
    match outbox::after(database, INCIDENTS, 0, 100).await.unwrap() {
        Replay::Events(events) => {
            let all =
                events.iter().map(|event| serde_json::from_str::<IncidentEvent>(&event.payload).unwrap());
            all.filter(|event| event.kind == kind).collect()
        }
        missed @ Replay::Missed { .. } => panic!("{missed:?}"),
    }
}

every_database! {
    /// U5 U6 U8
    async fn saving_a_change_is_idempotent(test_database: TestDatabase) {
        let database = open(&test_database).await;
        let monitor = monitor(&database, |_| {}).await;
        let opened = change(&monitor, IncidentChange::Opened, 7);
        for _ in 0..3 {
            assert_eq!(incident::save_change(&database, &monitor, &opened, Alerting::Enabled).await.unwrap(), Alerted::Yes);
        }
        // A later check does not open a second incident.
        incident::save_change(&database, &monitor, &change(&monitor, IncidentChange::Opened, 8), Alerting::Enabled).await.unwrap();
        let open = incidents::all_open(&database).await.unwrap();
        assert_eq!(open.len(), 1);
        assert_eq!((open[0].opened_at, open[0].confirmed_at), (UnixMs(990_000), UnixMs(1_007_000)));

        let resolved = change(&monitor, IncidentChange::Resolved, 9);
        for _ in 0..2 {
            incident::save_change(&database, &monitor, &resolved, Alerting::Enabled).await.unwrap();
        }
        let kept = incidents::page(&database, &Filter::Of(monitor.id.clone()), &PageRequest::default()).await.unwrap();
        assert_eq!(kept.rows.len(), 1);
        assert_eq!((kept.rows[0].resolved_at, kept.rows[0].resolution), (Some(UnixMs(1_009_000)), Some(Resolution::Recovered)));

        let (opened, resolved) = (events(&database, IncidentEventKind::Opened).await, events(&database, IncidentEventKind::Resolved).await);
        assert_eq!((opened.len(), resolved.len()), (1, 1));
        assert_eq!((opened[0].name.as_str(), &opened[0].channels), ("Shop", &vec!["ops".to_owned()]));
        assert_eq!((resolved[0].incident.as_str(), resolved[0].opened_at_ms), (kept.rows[0].id.as_str(), 990_000));
    }

    /// U6
    async fn earlier_recovery_does_not_resolve_an_incident(test_database: TestDatabase) {
        let database = open(&test_database).await;
        let monitor = monitor(&database, |_| {}).await;
        incident::save_change(&database, &monitor, &change(&monitor, IncidentChange::Opened, 7), Alerting::Enabled).await.unwrap();
        incident::save_change(&database, &monitor, &change(&monitor, IncidentChange::Resolved, 6), Alerting::Enabled).await.unwrap();
        assert_eq!(incidents::all_open(&database).await.unwrap().len(), 1);
    }

    /// U6
    async fn later_recovery_resolves_an_incident_even_if_the_store_repeats_fences(test_database: TestDatabase) {
        let database = open(&test_database).await;
        let monitor = monitor(&database, |_| {}).await;
        incident::save_change(&database, &monitor, &change(&monitor, IncidentChange::Opened, 7), Alerting::Enabled).await.unwrap();
        let later = PendingChange { at_ms: 2_000_000, ..change(&monitor, IncidentChange::Resolved, 3) };
        incident::save_change(&database, &monitor, &later, Alerting::Enabled).await.unwrap();
        assert!(incidents::all_open(&database).await.unwrap().is_empty());
    }

    /// U8
    async fn incident_in_a_maintenance_window_is_alerted_after_it(test_database: TestDatabase) {
        let database = open(&test_database).await;
        let monitor = monitor(&database, |_| {}).await;
        let opened = change(&monitor, IncidentChange::Opened, 7);
        let alerted = incident::save_change(&database, &monitor, &opened, Alerting::Suppressed).await.unwrap();
        assert_eq!(alerted, Alerted::NotYet);
        let open = incidents::all_open(&database).await.unwrap().remove(0);
        assert!(open.maintenance && open.told_at.is_none());
        incident::remind(&database, &monitor, &open, Alerting::Suppressed).await.unwrap();
        assert_eq!(events(&database, IncidentEventKind::Opened).await.len(), 0);
        for _ in 0..2 {
            incident::remind(&database, &monitor, &open, Alerting::Enabled).await.unwrap();
        }
        assert_eq!(events(&database, IncidentEventKind::Opened).await.len(), 1);
    }

    /// U8
    async fn reminders_are_sent_until_the_incident_is_acknowledged(test_database: TestDatabase) {
        let database = open(&test_database).await;
        let monitor = monitor(&database, |spec| spec.remind_s = 1).await;
        incident::save_change(&database, &monitor, &change(&monitor, IncidentChange::Opened, 7), Alerting::Enabled).await.unwrap();
        let open = incidents::all_open(&database).await.unwrap().remove(0);
        let monitor = &monitor;
        hob_testkit::wait_for("a reminder event", LIMIT, async || {
            let open = incidents::all_open(&database).await.unwrap().remove(0);
            incident::remind(&database, monitor, &open, Alerting::Enabled).await.unwrap();
            open.reminders == 1
        })
        .await;
        assert_eq!(events(&database, IncidentEventKind::Reminded).await[0].number, 1);

        let first = incident::acknowledge(&database, &open.id, "ann").await.unwrap();
        assert!(matches!(first, AcknowledgeOutcome::Acknowledged(_)));
        let second = incident::acknowledge(&database, &open.id, "bob").await.unwrap();
        let AcknowledgeOutcome::Already(kept) = second else { panic!("{second:?}") };
        assert_eq!(kept.acknowledged_by.as_deref(), Some("ann"));
        incident::remind(&database, monitor, &kept, Alerting::Enabled).await.unwrap();
        assert_eq!(incident::acknowledge(&database, "unknown", "ann").await.unwrap(), AcknowledgeOutcome::NotFound);
    }

    /// U8
    async fn notes_keep_their_order(test_database: TestDatabase) {
        let database = open(&test_database).await;
        let monitor = monitor(&database, |_| {}).await;
        incident::save_change(&database, &monitor, &change(&monitor, IncidentChange::Opened, 7), Alerting::Enabled).await.unwrap();
        let id = incidents::all_open(&database).await.unwrap().remove(0).id;
        for text in ["looking", "found it"] {
            let added = incident::annotate(&database, &id, "ann", text).await.unwrap();
            assert!(matches!(added, AnnotateOutcome::Added(_)));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let notes: Vec<String> =
            incidents::notes(&database, &id).await.unwrap().into_iter().map(|note| note.text).collect();
        assert_eq!(notes, ["looking", "found it"]);
        assert_eq!(incident::annotate(&database, "unknown", "ann", "?").await.unwrap(), AnnotateOutcome::NotFound);
    }

    async fn notes_of_an_incident_are_limited(test_database: TestDatabase) {
        let database = open(&test_database).await;
        let monitor = monitor(&database, |_| {}).await;
        incident::save_change(&database, &monitor, &change(&monitor, IncidentChange::Opened, 7), Alerting::Enabled).await.unwrap();
        let id = incidents::all_open(&database).await.unwrap().remove(0).id;
        for _ in 0..incident::MAX_NOTES {
            let added = incident::annotate(&database, &id, "ann", "looking").await.unwrap();
            assert!(matches!(added, AnnotateOutcome::Added(_)));
        }
        let refused = incident::annotate(&database, &id, "ann", "one more").await.unwrap();
        assert_eq!(refused, AnnotateOutcome::LimitReached);
    }

    /// U8
    async fn window_covers_ids_tags_and_all_monitors(test_database: TestDatabase) {
        let database = open(&test_database).await;
        let monitor = monitor(&database, |spec| spec.tags = vec!["eu".to_owned()]).await;
        let spec = |covers: &[&str]| MaintenanceSpec {
            title: "Move".to_owned(),
            covers: covers.iter().map(|name| (*name).to_owned()).collect(),
            starts_at_ms: 1000,
            ends_at_ms: 2000,
        };
        for (covers, covered) in [(&["shop"][..], true), (&["eu"], true), (&[], true), (&["us"], false)] {
            let window = maintenance::add(&database, &spec(covers)).await.unwrap();
            assert_eq!(window.covers(&monitor, UnixMs(1500)), covered, "{covers:?}");
            assert!(!window.covers(&monitor, UnixMs(2000)));
        }
        assert!(MaintenanceSpec { ends_at_ms: 1000, ..spec(&[]) }.validate(&[]).is_err());
        let monitors = [std::sync::Arc::new(monitor)];
        for (covers, errors) in [(&["shop", "eu"][..], &[][..]), (&[], &[]), (&["eu", "ue"], &["covers[1]"])] {
            let refused = spec(covers).validate(&monitors).err().unwrap_or_default();
            assert_eq!(refused.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), errors, "{covers:?}");
        }
    }
}
