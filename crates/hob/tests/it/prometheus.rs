//! A real Prometheus reads two nodes: every query of the dashboards and alert rules in `deploy/` finds data, and quantiles of
//! several nodes are right.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hob_testkit::{LIMIT, Port, Postgres, Process, RedisOptions, RedisServer, wait_for};
use redis::Commands as _;
use serde_json::Value;
use tempfile::TempDir;

use crate::program::{Response, Server, send};

/// A Prometheus that reads nodes every second.
pub(crate) struct Prometheus {
    address: SocketAddr,
    _process: Process,
    _port: Port,
    _folder: TempDir,
}

impl Prometheus {
    fn start(nodes: &[&Server]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = format!(
            "global:\n  scrape_interval: 1s\nrule_files: [\"{}\"]\nscrape_configs:\n  - job_name: hob\n    \
             static_configs:\n",
            deploy("prometheus/alerts.yml").display()
        );
        for (number, node) in (1..).zip(nodes) {
            config += &format!(
                "      - targets: [\"{}\"]\n        labels: {{ instance: \"node-{number}\" }}\n",
                node.listen
            );
        }
        fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        let port = Port::reserve();
        let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
        let mut command = Command::new("prometheus");
        command.current_dir(&folder).args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
        command.arg(format!("--web.listen-address={address}"));
        let process = Process::start(folder.path(), command);
        Self { address, _process: process, _port: port, _folder: folder }
    }

    fn get(&self, path: &str) -> Result<Value, String> {
        let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        let Response { status, body, .. } =
            send(self.address, &request).map_err(|error| error.to_string())?;
        serde_json::from_str(&body).map_err(|error| format!("{status}: {error}: {body}"))
    }

    /// The series that a query finds in a time range, as JSON.
    pub(crate) fn query_range(
        &self,
        query: &str,
        range_ms: &Range<u64>,
        step: Duration,
    ) -> Result<Vec<Value>, String> {
        let [start, end] = [range_ms.start, range_ms.end].map(|ms| ms as f64 / 1000.0);
        let (query, step) = (encoded(query), step.as_secs());
        let path = format!("/api/v1/query_range?query={query}&start={start}&end={end}&step={step}");
        let mut answer = self.get(&path)?;
        match answer["data"]["result"].take() {
            Value::Array(series) => Ok(series),
            _ => Err(format!("{query}: {answer}")),
        }
    }

    /// The values that a query finds now.
    fn query(&self, query: &str) -> Result<Vec<f64>, String> {
        let answer = self.get(&format!("/api/v1/query?query={}", encoded(query)))?;
        let series = answer["data"]["result"].as_array().ok_or_else(|| format!("{query}: {answer}"))?;
        let values = series.iter().filter_map(|one| one["value"][1].as_str()?.parse().ok());
        Ok(values.filter(|value: &f64| !value.is_nan()).collect())
    }
}

/// For the query of a URL.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

fn deploy(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(folder)
}

/// The dashboards, with the names of their files.
pub(crate) fn dashboards() -> Vec<(String, Value)> {
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, serde_json::from_slice(&fs::read(path).unwrap()).unwrap())
    };
    fs::read_dir(deploy("grafana")).unwrap().map(|file| read(file.unwrap().path())).collect()
}

/// A query with values for Grafana's variables.
pub(crate) fn without_variables(query: &str) -> String {
    let replaced = query.replace("$__rate_interval", "30s").replace("$instance", ".*");
    assert!(!replaced.contains('$'), "{query} has an unknown variable");
    replaced
}

/// The queries of all dashboards, with the title of their panel.
fn dashboard_queries() -> Vec<(String, String)> {
    let mut queries = Vec::new();
    for (_, dashboard) in dashboards() {
        for panel in dashboard["panels"].as_array().unwrap() {
            let title = format!("{}: {}", dashboard["title"], panel["title"]);
            for target in panel["targets"].as_array().unwrap() {
                queries.push((title.clone(), without_variables(target["expr"].as_str().unwrap())));
            }
        }
    }
    assert!(queries.len() > 40, "only {} queries", queries.len());
    queries
}

/// What the alert rules compare with their thresholds, with the names of the alerts.
fn rule_queries(prometheus: &Prometheus) -> Result<Vec<(String, String)>, String> {
    let answer = prometheus.get("/api/v1/rules")?;
    let groups = answer["data"]["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let compared = |rule: &Value| {
        let query = rule["query"].as_str().unwrap();
        let threshold = query.rfind(['<', '>']).unwrap_or_else(|| panic!("{query} has no threshold"));
        (rule["name"].as_str().unwrap().to_owned(), query[..threshold].to_owned())
    };
    let queries: Vec<_> = rules.map(compared).collect();
    if queries.len() > 10 { Ok(queries) } else { Err(answer.to_string()) }
}

/// An upstream that delays the response to `/MS` by this many milliseconds.
fn slow_upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut head = [0; 2048];
                let read = stream.read(&mut head).unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                let delay = head.split(['/', ' ']).nth(2).and_then(|ms| ms.parse().ok()).unwrap_or(0);
                std::thread::sleep(Duration::from_millis(delay));
                let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            });
        }
    });
    address
}

/// The 99th percentile of two nodes that Prometheus calculates is that of the response times in Redis, which both write.
/// The slowest tenth is on one node, so that neither node has the same percentile alone.
#[tokio::test(flavor = "multi_thread")]
async fn percentile_of_two_nodes_is_that_of_all_requests() {
    const REQUESTS: usize = 500;
    let (redis, postgres) = (RedisServer::start(), Postgres::start());
    let config = format!(
        "[redis]\nurl = \"{}\"\n[database]\nurl = \"{}\"\n[gateway]\nupstream = [\"http://{}\"]\n\
         count_loopback = true\nroutes = [\"/:ms\"]\n",
        redis.url(),
        postgres.url(),
        slow_upstream()
    );
    let nodes = [0, 1].map(|_| Server::start_configured("127.0.0.1:0", &config));
    let prometheus = Prometheus::start(&[&nodes[0], &nodes[1]]);
    std::thread::scope(|scope| {
        for (at, node) in nodes.iter().enumerate() {
            for client in 0..10 {
                scope.spawn(move || {
                    for request in 0..REQUESTS / 10 {
                        // One in five requests of the second node takes 100 to 200 ms, each another time.
                        let slow = at == 1 && request % 5 == 0;
                        let ms = if slow { 100 + request * 2 + client } else { 5 };
                        let head =
                            format!("GET /{ms} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n");
                        assert_eq!(send(node.gateway.unwrap(), &head).unwrap().status, 200);
                    }
                });
            }
        }
    });
    let total = 2.0 * REQUESTS as f64;
    wait_for("all response times", LIMIT, async || {
        let counted = prometheus.query("sum(hob_gateway_response_seconds_count)");
        if counted == Ok(vec![total]) { Ok(()) } else { Err(counted) }
    })
    .await;
    let key = "ha:response_times:GET_/:ms";
    let times: Vec<f64> = wait_for("all response times in Redis", LIMIT, async || {
        let members: Vec<f64> = redis.connect().zrange(key, 0, -1).unwrap();
        if members.len() == 2 * REQUESTS { Ok(members) } else { Err(members.len()) }
    })
    .await;
    let mut times = times;
    times.sort_by(f64::total_cmp);
    let truth = times[times.len() * 99 / 100 - 1] / 1000.0;
    let merged = "histogram_quantile(0.99, sum by (le) (hob_gateway_response_seconds_bucket))";
    let merged = prometheus.query(merged).unwrap()[0];
    assert!((merged - truth).abs() < 0.02 * truth, "{merged} s instead of {truth} s");
}

/// Two nodes of the demo, which uses all five services, and a Prometheus that reads them.
pub(crate) struct ObservedDemo {
    pub(crate) prometheus: Prometheus,
    _nodes: [Server; 2],
    _servers: (RedisServer, Postgres, TempDir),
}

impl ObservedDemo {
    /// A certificate, and a run whose end can be estimated, are all that the demo does not have.
    pub(crate) fn start() -> Self {
        let redis = RedisServer::start_with(&RedisOptions { tls: true, ..RedisOptions::default() });
        let (postgres, folder) = (Postgres::start(), tempfile::tempdir().unwrap());
        let authority = folder.path().join("ca.pem");
        fs::write(&authority, redis.authority_pem()).unwrap();
        let (redis_url, database) = (redis.url(), postgres.url());
        let arguments = ["--demo", "--redis", &redis_url, "--database", &database];
        let trusted = [("HOB_UPTIME_CA_FILE", authority.to_str().unwrap())];
        let nodes = [Server::start_with(&arguments, &trusted), Server::start_with(&arguments, &trusted)];
        let target = redis.tls_url().trim_start_matches("rediss://").trim_end_matches('/').to_owned();
        let monitor = serde_json::json!({
            "name": "Redis", "kind": "certificate", "target": target, "interval_s": 5, "tags": ["a", "b"],
        });
        let added = nodes[0].post("/api/v1/uptime/monitors", &monitor.to_string());
        assert_eq!(added.status, 201, "{}", added.body);
        let plan = format!(
            "name = \"slow\"\nquota = {{ name = \"slow\", windows = \"1/1m\" }}\n\
             source = {{ step = \"page\", list = [\"1\", \"2\", \"3\", \"4\", \"5\", \"6\"] }}\n[step.page]\nget = \"http://{}/${{key}}\"\n",
            slow_upstream()
        );
        assert_eq!(
            nodes[0].post("/api/v1/pipelines", &serde_json::json!({ "source": plan }).to_string()).status,
            201
        );
        assert_eq!(nodes[0].post("/api/v1/pipelines/slow/runs", "{}").status, 201);
        let prometheus = Prometheus::start(&[&nodes[0], &nodes[1]]);
        Self { prometheus, _nodes: nodes, _servers: (redis, postgres, folder) }
    }

    /// Waits until every query of the dashboards and the alert rules has found data.
    pub(crate) async fn wait_for_data(&self) {
        let mut open = wait_for("the rules", LIMIT, async || rule_queries(&self.prometheus)).await;
        open.extend(dashboard_queries());
        wait_for("every query to find data", LIMIT * 8, async || {
            open.retain(|(_, query)| !self.prometheus.query(query).is_ok_and(|values| !values.is_empty()));
            if open.is_empty() { Ok(()) } else { Err(open.clone()) }
        })
        .await;
    }
}

mod slow {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn every_query_of_dashboards_and_alerts_finds_data() {
        let demo = ObservedDemo::start();
        demo.wait_for_data().await;
        let by_tag = demo.prometheus.query(r#"hob_uptime_monitor_up{name="Redis", tags=~".*,b,.*"}"#);
        assert_eq!(by_tag, Ok(vec![1.0, 1.0]), "both nodes report the monitor");
    }
}
