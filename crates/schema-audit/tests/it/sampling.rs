//! Audits of a part of the keys, on a server whose keys are known.

use hob_schema::check::Breach;
use hob_schema::{Catalog, Layout, Schema};
use hob_schema_audit::{AuditOptions, AuditReport, Baseline, SampleSize, Sampling, audit};
use hob_store::Store;
use hob_testkit::RedisServer;

use crate::open;

const SCHEMA: &str = "[schema]\nname = \"app\"\nversion = 1\n[ids]\nid = {}\n\
    [key.session]\npattern = \"session:<id>\"\ntype = \"string\"\nvalue = { text = 16 }\nttl = { max = \"1h\" }\n\
    [key.counter]\npattern = \"counter:<id>\"\ntype = \"string\"\nvalue = \"int\"\nttl = { none = \"few\" }\n";
const KEYS: u64 = 3_000;
/// Sessions without a TTL, and sessions that are too long; the second kind is rare.
const WITHOUT_TTL: u64 = 150;
const TOO_LONG: u64 = 6;

fn catalog() -> Catalog {
    Catalog::new(vec![Schema::parse("t.toml", SCHEMA).unwrap()], Layout::Plain).unwrap()
}

fn seeded() -> RedisServer {
    let server = RedisServer::start();
    let mut connection = server.connect();
    let mut pipe = redis::pipe();
    for id in 0..KEYS {
        let value = if id >= KEYS - TOO_LONG { "a value that is too long" } else { "short" };
        let key = format!("session:{id}");
        match id < WITHOUT_TTL {
            true => pipe.set(key, value),
            false => pipe.set_ex(key, value, 3_000),
        };
    }
    for id in 0..40 {
        pipe.set(format!("counter:{id}"), if id == 7 { "seven" } else { "7" });
    }
    pipe.set("surprise:1", 1);
    pipe.exec(&mut connection).unwrap();
    server
}

async fn sampled(store: &Store, catalog: &Catalog, size: SampleSize, seed: u64) -> AuditReport {
    let options = AuditOptions { sampling: Some(Sampling { size, seed }), ..AuditOptions::default() };
    audit(store, catalog, options, &mut |_| {}).await.unwrap()
}

/// The bounds of a finding: of its estimate, or for one that was not seen.
fn bounds(report: &AuditReport, family: &str, breach: Breach) -> (u64, u64) {
    let found = report.violations.iter().find(|group| group.family == family && group.breach == breach);
    let unseen =
        || report.families.iter().find(|known| known.family == family).unwrap().unseen_at_most.unwrap();
    found.map_or_else(
        || (0, unseen()),
        |group| {
            let estimate = group.estimate.unwrap();
            assert!((estimate.low..=estimate.high).contains(&estimate.keys));
            (estimate.low, estimate.high)
        },
    )
}

/// The order of SCAN differs from server to server, so the result is not the same each time. If the bounds held exactly as often
/// as stated, 15 of 80 would be wrong once in 30,000 runs; they hold more often, because a number of keys is not continuous.
#[tokio::test]
async fn bounds_contain_the_truth_as_often_as_stated() {
    let (server, catalog) = (seeded(), catalog());
    let store = open(&server.url()).await;
    let (mut frequent, mut rare, mut width) = (0, 0, 0);
    for seed in 0..80 {
        let report = sampled(&store, &catalog, SampleSize::Share(0.1), seed).await;
        let (low, high) = bounds(&report, "app.session", Breach::MissingTtl);
        frequent += u32::from((low..=high).contains(&WITHOUT_TTL));
        width += high - low;
        let (low, high) = bounds(&report, "app.session", Breach::MisfitValue);
        rare += u32::from((low..=high).contains(&TOO_LONG));
    }
    assert!(frequent >= 66 && rare >= 66, "of 80, the bounds contained {frequent} and {rare}");
    // With 390 of 3,000 keys the interval is about four standard errors wide: 4 * 2,900 * sqrt(0.05 * 0.95 / 290) = 148.
    assert!((80..200).contains(&(width / 80)), "{}", width / 80);
}

#[tokio::test]
async fn sample_reads_few_keys_and_says_what_it_does_not_know() {
    let (server, catalog) = (seeded(), catalog());
    let store = open(&server.url()).await;
    let reads = |server: &RedisServer| {
        let stats: String = server.command(&["INFO", "commandstats"]);
        let calls = |line: &str| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok();
        let is_read =
            |line: &&str| ["pttl", "strlen", "getrange", "get:"].iter().any(|name| line.contains(name));
        stats.lines().filter(is_read).filter_map(calls).sum::<u64>()
    };
    server.command::<()>(&["CONFIG", "RESETSTAT"]);
    let full = audit(&store, &catalog, AuditOptions::default(), &mut |_| {}).await.unwrap();
    let all_reads = reads(&server);
    server.command::<()>(&["CONFIG", "RESETSTAT"]);
    let report = sampled(&store, &catalog, SampleSize::Share(0.02), 5).await;
    let few_reads = reads(&server);
    assert!(few_reads * 5 < all_reads, "{few_reads} and {all_reads}");

    // The names of all keys are known, so families and undeclared keys are exact.
    let keys = |report: &AuditReport| report.families.iter().map(|family| family.keys).collect::<Vec<_>>();
    assert_eq!((keys(&report), report.undeclared.len()), (keys(&full), 1));
    assert_eq!(keys(&report), [KEYS, 40]);
    let facts = report.sampling.unwrap();
    assert_eq!(facts.checked, report.families.iter().map(|family| family.checked).sum::<u64>());
    assert!((141..300).contains(&facts.checked), "{}", facts.checked);
    // All keys of a small family are checked, so nothing is unseen there, and its findings are exact.
    let small = &report.families[1];
    assert_eq!((small.checked, small.unseen_at_most), (40, Some(0)));
    assert_eq!(bounds(&report, "app.counter", Breach::MisfitValue), (1, 1));
    let large = &report.families[0];
    assert!(large.unseen_at_most.unwrap() > 20, "{large:?}");

    let text = report.text();
    assert!(
        text.contains("of them were checked: the first 100 of each family, and 2 % of the others (seed 5)"),
        "{text}"
    );
    assert!(text.contains("in the family (95 %: "), "{text}");
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(json["sampling"]["confidence"], 0.95);
    assert!(json["families"][0]["unseen_at_most"].is_u64(), "{json:#}");
    // The same seed on the same server checks the same keys.
    let again = sampled(&store, &catalog, SampleSize::Share(0.02), 5).await;
    assert_eq!(
        bounds(&again, "app.session", Breach::MissingTtl),
        bounds(&report, "app.session", Breach::MissingTtl)
    );
}

#[tokio::test]
async fn sample_of_all_keys_is_exact() {
    let (server, catalog) = (seeded(), catalog());
    let store = open(&server.url()).await;
    let report = sampled(&store, &catalog, SampleSize::Keys(1_000_000), 1).await;
    assert_eq!(report.sampling.unwrap().checked, KEYS + 40);
    assert_eq!(bounds(&report, "app.session", Breach::MissingTtl), (WITHOUT_TTL, WITHOUT_TTL));
    assert_eq!(bounds(&report, "app.session", Breach::MisfitValue), (TOO_LONG, TOO_LONG));
    assert!(!report.text().contains("(95 %: "), "{}", report.text());
}

/// A sample finds another number of keys each time. Only growth beyond the bounds is new.
#[tokio::test]
async fn baseline_of_a_sample_reports_only_certain_growth() {
    let (server, catalog) = (seeded(), catalog());
    let store = open(&server.url()).await;
    let earlier = sampled(&store, &catalog, SampleSize::Share(0.1), 1).await;
    let baseline = Baseline::from_json(&earlier.json()).unwrap();
    let later = baseline.only_new(sampled(&store, &catalog, SampleSize::Share(0.1), 2).await);
    let grown =
        |report: &AuditReport| report.violations.iter().any(|group| group.breach == Breach::MissingTtl);
    assert!(!grown(&later), "{}", later.text());
    for id in 0..KEYS {
        server.command::<()>(&["PERSIST", &format!("session:{id}")]);
    }
    assert!(grown(&baseline.only_new(sampled(&store, &catalog, SampleSize::Share(0.1), 3).await)));
}
