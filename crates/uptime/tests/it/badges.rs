//! Badges.

use hob_fixtures::{Layout, TestApp, TestContext};
use hob_service::{Live, SecretRef};
use hob_uptime::keys::MonitorId;
use hob_uptime::monitor::MonitorSpec;
use hob_uptime::monitor::check::MonitorKind;
use hob_uptime::{AddOutcome, Config, Uptime};
use hob_web::Service as _;

use crate::NEEDS;
use crate::target::Target;

const TOKEN: &str = "correct horse battery staple";

#[tokio::test]
async fn badge_shows_published_monitors_only() {
    let context = TestContext::embedded(NEEDS, Layout::Plain).await;
    let target = Target::raw(|stream| async { drop(stream) }).await;
    let uptime = Uptime::open(&context, Live::fixed(Config::default())).await.unwrap();
    for (id, published) in [("shown", true), ("hidden", false)] {
        let spec =
            MonitorSpec { published, ..MonitorSpec::new(id, MonitorKind::Tcp, &target.address.to_string()) };
        let id = MonitorId::new(id).unwrap();
        assert!(matches!(uptime.add(Some(id.clone()), &spec).await.unwrap(), AddOutcome::Added(_)));
        uptime.check_now(&id).await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, TOKEN).unwrap();
    let config = hob_web::Config { admin_token: Some(SecretRef::File(path)), ..hob_web::Config::default() };
    let mut app = TestApp::start_with_config(&context, Live::fixed(config), |_| uptime.routes()).await;

    for (fact, text) in
        [("status", "status: up"), ("uptime", "uptime 30 d: 100.00 %"), ("latency", "<title>latency: ")]
    {
        let badge = app.get(&format!("/badge/shown/{fact}.svg")).await;
        let svg = String::from_utf8_lossy(&badge.body).into_owned();
        assert_eq!((badge.status.as_u16(), svg.contains(text)), (200, true), "{fact}: {svg}");
        assert_eq!(badge.headers["content-type"], "image/svg+xml; charset=utf-8");
        assert_eq!(badge.headers["cache-control"], "public, max-age=30");
    }
    // A hidden monitor looks like one that does not exist.
    let (hidden, unknown) =
        (app.get("/badge/hidden/status.svg").await, app.get("/badge/unknown/status.svg").await);
    assert_eq!((hidden.status.as_u16(), unknown.status.as_u16()), (404, 404));
    assert_eq!(app.get("/badge/shown/owner.svg").await.status, 404);

    app.use_token(TOKEN);
    let hidden = app.get("/badge/hidden/status.svg").await;
    assert_eq!(
        (hidden.status.as_u16(), &hidden.headers["cache-control"]),
        (200, &"private, max-age=30".parse().unwrap())
    );
}
