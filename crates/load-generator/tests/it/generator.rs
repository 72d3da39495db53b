//! The requests that the generator sends, and its handling of responses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hob_load_generator::generator::{Generator, Job, Share, Targets};
use hob_load_generator::plan::{Format, LoadModel, Plan};
use hob_load_generator::{Fault, LocalRun, Second, Totals};

use crate::accuracy::run;
use hob_testkit::{HttpServer, LIMIT, Reply, repeat_until_ok, wait_for};

fn raw(text: &str) -> Reply {
    Reply::Raw(text.as_bytes().to_vec())
}

fn read(text: &str) -> Plan {
    Plan::read(text, Format::Toml).unwrap_or_else(|mistake| panic!("{mistake}"))
}

fn faults(totals: &Totals, step: usize) -> Vec<Fault> {
    totals.steps()[step].faults.keys().copied().collect()
}

#[tokio::test]
async fn values_cookies_and_users_are_sent_in_later_requests() {
    let server = HttpServer::start(|n| match n {
        0 => raw(
            "HTTP/1.1 200 OK\r\nset-cookie: session=s1; Path=/\r\nx-next: 42\r\ncontent-length: 17\r\n\r\n\
             {\"token\": \"t-99\"}",
        ),
        _ => raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndone\r\n0\r\n\r\n"),
    });
    let plan = read(&format!(
        r#"
        name = "shop"
        target = "{}"
        vars = {{ shop = "main" }}
        headers = {{ accept = "application/json" }}
        [run.full]
        users = [{{ login = "ann", password = "a b" }}]
        [[scenario]]
        name = "buy"
        load = {{ rate = 1, for = "1s" }}
        [[scenario.step]]
        name = "login"
        request = "POST /${{shop}}/login"
        json = {{ login = "${{login}}", password = "${{password}}" }}
        extract = {{ token = "json $.token", next = "header x-next" }}
        [[scenario.step]]
        name = "order"
        request = "GET /orders/${{next}}?user=${{user}}"
        headers = {{ authorization = "Bearer ${{token}}" }}
        expect = {{ status = 200, contains = "done" }}
        "#,
        server.url("")
    ));
    let totals = run(&plan, 1).await;
    assert_eq!((totals.requests(), totals.failed()), (2, 0), "{:?}", totals.steps());
    let received = server.received();
    assert!(received[0].starts_with("POST /main/login HTTP/1.1\r\nhost: 127.0.0.1:"), "{}", received[0]);
    assert!(received[0].contains("content-type: application/json\r\n"), "{}", received[0]);
    assert!(received[0].ends_with(r#"{"login":"ann","password":"a b"}"#), "{}", received[0]);
    assert!(received[1].starts_with("GET /orders/42?user=0 HTTP/1.1\r\n"), "{}", received[1]);
    for line in ["authorization: Bearer t-99\r\n", "cookie: session=s1\r\n", "accept: application/json\r\n"] {
        assert!(received[1].contains(line), "{}", received[1]);
    }
}

#[tokio::test]
async fn each_failure_is_counted_by_its_reason() {
    for (behaviour, fault) in [
        (
            Arc::new(|| raw("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"))
                as Arc<dyn Fn() -> Reply + Send + Sync>,
            Fault::Status(503),
        ),
        (Arc::new(|| raw("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnope")), Fault::Check(0)),
        (Arc::new(|| raw("SSH-2.0-OpenSSH\r\n")), Fault::Protocol),
        (Arc::new(|| Reply::Close), Fault::Closed),
        (Arc::new(|| Reply::After(Duration::from_secs(60))), Fault::Timeout),
    ] {
        // The others get a response, which a busy machine may delay.
        let timeout = if fault == Fault::Timeout { "200ms" } else { "30s" };
        let server = HttpServer::start(move |_| behaviour());
        let plan = read(&format!(
            r#"
            name = "f"
            target = "{}"
            timeout = "{timeout}"
            [[scenario]]
            name = "s"
            load = {{ rate = 2, for = "1s" }}
            step = [{{ name = "a", request = "GET /", expect = {{ contains = "yes" }} }}]
            "#,
            server.url("")
        ));
        let totals = run(&plan, 1).await;
        let expected = if let Fault::Status(_) = fault { Fault::Check(0) } else { fault };
        assert_eq!((totals.requests(), totals.failed(), faults(&totals, 0)), (2, 2, vec![expected]));
    }
    let plan = Plan::quick("http://127.0.0.1:1/", LoadModel::rate(2.0, Duration::from_secs(1), 5)).unwrap();
    let totals = run(&plan, 1).await;
    assert_eq!(faults(&totals, 0), [Fault::Connect]);
}

#[tokio::test]
async fn status_of_400_or_above_fails_unless_expected() {
    let server = HttpServer::start(|_| raw("HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n"));
    let plan = read(&format!(
        "name = 's'\ntarget = '{}'\n[[scenario]]\nname = 's'\nload = {{ rate = 1, for = '1s' }}\n\
         step = [{{ name = 'a', request = 'GET /', expect = {{ status = 404 }} }}, {{ name = 'b', request = 'GET /' }}]",
        server.url("")
    ));
    let totals = run(&plan, 1).await;
    assert_eq!(faults(&totals, 0), []);
    assert_eq!(faults(&totals, 1), [Fault::Status(404)]);
}

#[tokio::test]
async fn closed_idle_connection_is_not_an_error() {
    // Closes the connection after every response in spite of keep-alive.
    let server = HttpServer::start(|n| match n % 2 {
        0 => raw("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
        _ => Reply::Close,
    });
    let plan = Plan::quick(&server.url("/"), LoadModel::rate(20.0, Duration::from_secs(1), 1)).unwrap();
    let totals = run(&plan, 1).await;
    assert_eq!((totals.requests(), totals.failed()), (20, 0));
}

/// N runners send the same requests as one.
#[tokio::test]
async fn shares_of_a_plan_add_up_to_the_whole() {
    let plan = "name = 's'\ntarget = 'TARGET'\n[run.all]\ncsv = \"\"\"\nid\n0\n1\n2\n3\n4\n5\n6\n\"\"\"\n\
        [[scenario]]\nname = 'open'\nload = { rate = 60, for = '1s', arrivals = 'poisson' }\n\
        step = [{ name = 'a', request = 'GET /open/${iteration}/${id}' }]\n\
        [[scenario]]\nname = 'ramp'\nload = { stages = [{ rate = 100, for = '1s' }] }\n\
        step = [{ name = 'b', request = 'GET /ramp/${iteration}/${id}' }]";
    let mut paths = Vec::new();
    for (runners, threads) in [(1, 1), (3, 2)] {
        let server = HttpServer::start(|_| Reply::After(Duration::ZERO));
        let plan = Arc::new(read(&plan.replace("TARGET", &server.url(""))));
        let targets = Targets::default().resolve(&plan, 0).await.unwrap();
        let start = Instant::now();
        let shares = (0..runners).map(|index| Share { index, of: runners });
        let mut generators: Vec<Generator> = shares
            .map(|share| {
                let (plan, targets) = (Arc::clone(&plan), targets.clone());
                Generator::start(&Job { plan, run_type: 0, share, threads, seed: 3, start, targets }).unwrap()
            })
            .collect();
        let mut merged = Totals::new(&plan);
        for generator in &mut generators {
            while let Some(second) = generator.next().await {
                merged.add(&second);
            }
        }
        let received = server.received();
        assert_eq!(merged.requests(), received.len() as u64);
        let mut lines: Vec<String> =
            received.iter().map(|request| request.lines().next().unwrap().to_owned()).collect();
        lines.sort();
        paths.push(lines);
    }
    assert!(paths[0].len() > 80, "{}", paths[0].len());
    assert_eq!(paths[0], paths[1]);
}

#[tokio::test]
async fn pause_holds_requests_and_stop_ends_them() {
    let server = HttpServer::start(|_| Reply::After(Duration::from_millis(1)));
    let plan = Plan::quick(&server.url("/"), LoadModel::rate(200.0, Duration::from_secs(600), 50)).unwrap();
    let plan = Arc::new(plan);
    let targets = Targets::default().resolve(&plan, 0).await.unwrap();
    let job =
        Job { plan, run_type: 0, share: Share::WHOLE, threads: 1, seed: 1, start: Instant::now(), targets };
    let mut generator = Generator::start(&job).unwrap();
    wait_for("requests", LIMIT, async || server.requests() > 50).await;
    generator.control().pause();
    // No request starts during a pause, but a busy server may still read earlier ones.
    let before = wait_for("half a second without requests", LIMIT, async || {
        let before = server.requests();
        tokio::time::sleep(Duration::from_millis(500)).await;
        if server.requests() == before { Ok(before) } else { Err(server.requests() - before) }
    })
    .await;
    let resumed = Instant::now();
    generator.control().resume();
    // More than the fifty users can have in flight, which are not counted when the generator stops.
    wait_for("requests after the pause", LIMIT, async || server.requests() > before + 150).await;
    let rate = (server.requests() - before) as f64 / resumed.elapsed().as_secs_f64();
    assert!(rate < 600.0, "requests that were due during the pause were sent after it: {rate}/s");
    generator.control().stop();
    let seconds: Vec<Second> = {
        let mut seconds = Vec::new();
        while let Some(second) = generator.next().await {
            seconds.push(second);
        }
        seconds
    };
    let counted: u64 = seconds.iter().map(Second::requests).sum();
    assert!(counted > 90 && counted <= server.requests(), "{counted}");
}

#[tokio::test]
async fn number_of_users_follows_the_stages() {
    let server = HttpServer::start(|_| Reply::After(Duration::from_millis(20)));
    let plan = read(&format!(
        "name = 's'\ntarget = '{}'\n[[scenario]]\nname = 's'\n\
         load = {{ stages = [{{ users = 8, for = '2s' }}, {{ users = 8, for = '1s' }}, {{ users = 0, for = '1s' }}] }}\n\
         step = [{{ name = 'a', request = 'GET /' }}]",
        server.url("")
    ));
    repeat_until_ok(async || {
        let totals = run(&plan, 2).await;
        let users: Vec<u64> = totals.points().iter().map(|point| point.users).collect();
        let requests: Vec<u64> = totals.points().iter().map(|point| point.requests).collect();
        let ramps = (2..8).contains(&users[0]) && users.iter().max() == Some(&8);
        if ramps && requests[2] > requests[0] { Ok(()) } else { Err(format!("{users:?}, {requests:?}")) }
    })
    .await;
}

#[tokio::test]
async fn pacing_limits_the_rate_of_a_user() {
    let server = HttpServer::start(|_| Reply::After(Duration::ZERO));
    let plan = read(&format!(
        "name = 's'\ntarget = '{}'\n[[scenario]]\nname = 's'\nload = {{ users = 5, for = '2s' }}\npacing = '100ms'\n\
         step = [{{ name = 'a', request = 'GET /' }}]",
        server.url("")
    ));
    repeat_until_ok(async || {
        let requests = run(&plan, 1).await.requests();
        let expected = (95..=105).contains(&requests);
        if expected { Ok(()) } else { Err(format!("{requests} instead of 5 × 10/s × 2 s")) }
    })
    .await;
}

#[tokio::test]
async fn failed_expectation_ends_the_iteration() {
    let server = HttpServer::start(|_| raw("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"));
    let plan = read(&format!(
        "name = 's'\ntarget = '{}'\n[[scenario]]\nname = 's'\nload = {{ rate = 3, for = '1s' }}\n\
         step = [{{ name = 'a', request = 'GET /a', expect = {{ contains = 'yes' }}, extract = {{ id = 'regex i(d)' }} }}, \
         {{ name = 'b', request = 'GET /b/${{id}}' }}]",
        server.url("")
    ));
    let totals = run(&plan, 1).await;
    assert_eq!((totals.requests(), totals.failed()), (3, 3));
    assert!(
        server.received().iter().all(|request| request.starts_with("GET /a ")),
        "{:?}",
        server.received()
    );
}

/// Nothing listens on this port.
const DEAD: &str = "http://127.0.0.1:1/";

#[tokio::test]
async fn bytes_count_only_when_they_were_sent() {
    let plan = Plan::quick(DEAD, LoadModel::rate(5.0, Duration::from_secs(1), 5)).unwrap();
    let totals = run(&plan, 1).await;
    assert_eq!((totals.requests(), totals.steps()[0].bytes_out), (5, 0));
    let server = HttpServer::start(|_| Reply::After(Duration::ZERO));
    let plan = Plan::quick(&server.url("/"), LoadModel::rate(5.0, Duration::from_secs(1), 5)).unwrap();
    let totals = run(&plan, 1).await;
    let received: usize = server.received().iter().map(String::len).sum();
    assert_eq!(totals.steps()[0].bytes_out, received as u64);
}

#[tokio::test]
async fn users_back_off_while_the_target_is_dead() {
    let plan = read(
        "name = 's'\ntarget = 'http://127.0.0.1:1'\n[[scenario]]\nname = 's'\nload = { users = 20, for = '2s' }\n\
         think = '1ms'\nstep = [{ name = 'a', request = 'GET /' }]",
    );
    let totals = run(&plan, 1).await;
    assert_eq!(totals.requests(), totals.failed());
    // A user waits 50 ms at least after its first failure, then longer.
    assert!((20..=20 * 10).contains(&totals.requests()), "{} attempts", totals.requests());
    assert_eq!(totals.backoffs().count, totals.requests());
    assert!(totals.backoffs().total >= Duration::from_millis(50) * 20, "{:?}", totals.backoffs());
}

#[tokio::test]
async fn users_continue_when_the_target_is_back() {
    let server = HttpServer::start(|n| if n < 6 { Reply::Close } else { Reply::After(Duration::ZERO) });
    let plan = Plan::quick(&server.url("/"), LoadModel::users(2, Duration::from_secs(60))).unwrap();
    let mut local = LocalRun::start(plan, 0, &Targets::default(), 1).await.unwrap();
    loop {
        let totals = local.next().await.expect("the run ended before the target was back");
        if totals.requests() > totals.failed() {
            break;
        }
    }
    local.stop();
}

#[tokio::test]
async fn values_in_a_url_are_encoded_unless_they_are_raw() {
    let server = HttpServer::start(|_| Reply::After(Duration::ZERO));
    let plan = read(&format!(
        "name = 's'\ntarget = '{}'\nvars = {{ x = 'a/b?c&d=e#f%ö', path = 'p/q?r=1' }}\n[[scenario]]\nname = 's'\n\
         load = {{ rate = 1, for = '1s' }}\nstep = [{{ name = 'a', request = 'GET /${{x}}/ü?q=${{x}}&n=1' }}, \
         {{ name = 'b', request = 'GET /${{raw:path}}' }}]",
        server.url("")
    ));
    assert_eq!(run(&plan, 1).await.failed(), 0);
    let lines: Vec<String> =
        server.received().iter().map(|request| request.lines().next().unwrap().to_owned()).collect();
    let encoded = "a%2Fb%3Fc%26d%3De%23f%25%C3%B6";
    let expected = format!("GET /{encoded}/%C3%BC?q={encoded}&n=1 HTTP/1.1");
    assert_eq!(lines, [expected.as_str(), "GET /p/q?r=1 HTTP/1.1"]);
}
