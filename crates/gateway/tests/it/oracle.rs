//! Eight instances, each in its own process, share one Redis. Their clocks are off by up to five seconds, and they are
//! killed and stopped at random: no window ever exceeds its limit.

mod slow {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpStream;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use std::sync::Arc;
    use std::thread::JoinHandle;
    use std::time::{Duration, Instant};

    use hob_admission::Identity;
    use hob_admission::{Limiter, Policy};
    use hob_fixtures::Layout;
    use hob_gateway::keys::Keys;
    use hob_store::{Address, Store};
    use hob_testkit::{LIMIT, RedisServer, budget};
    use parking_lot::Mutex;
    use rustix::process::{Pid, Signal, kill_process};
    use rustix::time::{ClockId, clock_gettime};

    use crate::kit::CLIENT;

    const INSTANCES: u64 = 8;
    const LIMIT_OF_RULE: usize = 30;
    const WINDOW: Duration = Duration::from_millis(300);
    /// Environment variables of a process that runs as an instance: the store's address, and the exactness.
    const STORE: &str = "HOB_TEST_ORACLE_STORE";
    const EXACTNESS: &str = "HOB_TEST_ORACLE_EXACTNESS";
    /// In the last call that is watched.
    const LAST_CALL: &str = "no more arrivals";

    /// Exact limits never admit more than a single thread that sees the same arrivals.
    #[test]
    fn exact_limits_hold_over_killed_processes() {
        let server = RedisServer::start();
        let arrivals = Arrivals::watch(&server);
        let passed = run(&server, "exact");
        assert_no_window_overflows(&passed);
        let admitted = arrivals.admitted_by_one_thread(&server);
        assert!(passed.len() <= admitted, "{} passed, one thread admits {admitted}", passed.len());
        assert!(passed.len() * 2 > admitted, "only {} of {admitted} passed", passed.len());
    }

    /// Tokens that were not spent in time are dropped.
    #[test]
    fn leased_limits_hold_over_killed_processes() {
        let server = RedisServer::start();
        assert_no_window_overflows(&run(&server, "leased"));
    }

    /// Runs as an instance if the environment names a store. Otherwise starts one and checks its reports.
    #[test]
    fn instance_reports_requests_that_pass() {
        match (std::env::var(STORE), std::env::var(EXACTNESS)) {
            (Ok(test_store), Ok(exactness)) => hob_testkit::run(check_forever(&test_store, &exactness)),
            _ => {
                let server = RedisServer::start();
                let mut instance = Instance::start(&server, "exact", 0);
                let (mut out, mut lines) =
                    (BufReader::new(instance.child.stdout.take().unwrap()), Vec::new());
                while lines.len() < LIMIT_OF_RULE {
                    lines.extend(read_passed(&mut out));
                }
                assert_no_window_overflows(&lines);
            }
        }
    }

    /// When a request that passed was sent and answered, in nanoseconds of the machine's monotonic clock.
    type Passed = (u64, u64);

    fn now_ns() -> u64 {
        let now = clock_gettime(ClockId::Monotonic);
        u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
    }

    /// Checks as fast as possible, and prints every request that passes.
    async fn check_forever(test_store: &str, exactness: &str) {
        let lease = if exactness == "leased" { "lease = \"60ms\"\n" } else { "" };
        let rule = format!(
            "[[rules]]\nname = \"api\"\nwindows = \"{LIMIT_OF_RULE}/{}ms\"\nalgorithm = \"sliding_log\"\n\
             exactness = \"{exactness}\"\non_store_failure = \"closed\"\n{lease}",
            WINDOW.as_millis(),
        );
        let policy = Policy::new(&toml::from_str(&rule).unwrap()).unwrap();
        let store =
            Store::connect(&test_store.parse::<Address>().unwrap()).await.unwrap().with_deadline(LIMIT);
        let limiter = Limiter::new(store, Keys::new(Layout::Plain), &policy);
        let (rule, who) = (limiter.rule("api").unwrap(), Identity::new(CLIENT).unwrap());
        let mut out = std::io::stdout();
        // Ends when the test closes the other end.
        std::thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0)
        });
        loop {
            let sent_at = now_ns();
            if limiter.check(&rule, &who, 1).await.is_allowed() {
                // One write, so that a kill leaves no partial line.
                let line = format!("\npassed {sent_at} {}\n", now_ns());
                if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
                    return;
                }
            } else {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    /// A process that runs only the test above, with its own clock.
    struct Instance {
        child: Child,
    }

    impl Instance {
        fn start(server: &RedisServer, exactness: &str, skew_s: i64) -> Self {
            let test = format!(
                "{}::instance_reports_requests_that_pass",
                module_path!().split_once("::").unwrap().1
            );
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.args([test.as_str(), "--exact", "--nocapture"]);
            // The program `faketime` would receive the signals instead of the process.
            command.env("LD_PRELOAD", faketime()).env("FAKETIME", format!("{skew_s:+}s"));
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
            command.env(STORE, server.url()).env(EXACTNESS, exactness);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            Self { child: command.spawn().expect("this test binary can be started") }
        }

        fn signal(&self, signal: Signal) {
            // The process may have ended already.
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }

    impl Drop for Instance {
        fn drop(&mut self) {
            self.signal(Signal::CONT);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// The library that shifts a process's clock.
    fn faketime() -> PathBuf {
        let folders = std::fs::read_dir("/usr/lib").unwrap().flatten().map(|entry| entry.path());
        let library = |folder: PathBuf| folder.join("faketime/libfaketimeMT.so.1");
        folders.map(library).find(|file| file.exists()).expect("install the Debian package faketime")
    }

    fn read_passed(out: &mut impl std::io::BufRead) -> Option<Passed> {
        let mut line = String::new();
        if out.read_line(&mut line).is_err() || line.is_empty() {
            return None;
        }
        let mut words = line.strip_prefix("passed ")?.trim().split(' ').map(|word| word.parse().ok());
        Some((words.next()??, words.next()??))
    }

    fn run(server: &RedisServer, exactness: &str) -> Vec<Passed> {
        let passed: Arc<Mutex<Vec<Passed>>> = Arc::default();
        let readers: Mutex<Vec<JoinHandle<()>>> = Mutex::default();
        let start = |number: u64| {
            // From five seconds behind to five seconds ahead.
            let skew_s = i64::try_from(number).unwrap() * 10 / (i64::try_from(INSTANCES).unwrap() - 1) - 5;
            let mut instance = Instance::start(server, exactness, skew_s);
            let (out, passed) = (instance.child.stdout.take().unwrap(), Arc::clone(&passed));
            readers.lock().push(std::thread::spawn(move || {
                let mut out = BufReader::new(out);
                while !out.fill_buf().unwrap_or_default().is_empty() {
                    if let Some(line) = read_passed(&mut out) {
                        passed.lock().push(line);
                    }
                }
            }));
            instance
        };
        let mut instances: Vec<Instance> = (0..INSTANCES).map(start).collect();
        let started = Instant::now();
        while passed.lock().is_empty() {
            assert!(started.elapsed() < LIMIT, "nothing passes");
            std::thread::sleep(Duration::from_millis(10));
        }
        let until = Instant::now() + budget(Duration::from_secs(4), Duration::from_secs(120));
        // A fixed seed, so that a run can be repeated.
        let mut luck = 42_u64;
        while Instant::now() < until || passed.lock().len() <= LIMIT_OF_RULE {
            assert!(Instant::now() < until + LIMIT, "only {} passed", passed.lock().len());
            luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = (luck >> 33) % INSTANCES;
            let pause = Duration::from_millis((luck >> 40) % 100 + 20);
            let instance = &mut instances[usize::try_from(number).unwrap()];
            if luck >> 62 == 0 {
                instance.signal(Signal::KILL);
                *instance = start(number);
                std::thread::sleep(pause);
            } else {
                // Often longer than a lease.
                instance.signal(Signal::STOP);
                std::thread::sleep(pause);
                instance.signal(Signal::CONT);
            }
        }
        drop(instances);
        for reader in readers.into_inner() {
            reader.join().unwrap();
        }
        let mut passed = std::mem::take(&mut *passed.lock());
        passed.sort_unstable();
        passed
    }

    fn assert_no_window_overflows(passed: &[Passed]) {
        for (index, (sent_at, _)) in passed.iter().enumerate() {
            // Requests that certainly fell into the window that starts here, by a clock that counts milliseconds.
            let end = sent_at + u64::try_from((WINDOW - Duration::from_millis(1)).as_nanos()).unwrap();
            let inside =
                passed[index..].iter().take_while(|(from, _)| *from <= end).filter(|(_, to)| *to <= end);
            let inside = inside.count();
            assert!(inside <= LIMIT_OF_RULE, "{inside} in {WINDOW:?}");
        }
    }

    /// When each call reached the store, by the store's clock.
    struct Arrivals {
        seen_us: JoinHandle<Vec<u64>>,
    }

    impl Arrivals {
        fn watch(server: &RedisServer) -> Self {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
            stream.write_all(b"MONITOR\r\n").unwrap();
            let mut welcome = [0; 5];
            stream.read_exact(&mut welcome).unwrap();
            assert_eq!(&welcome, b"+OK\r\n");
            let seen_us = std::thread::spawn(move || {
                let mut seen_us = Vec::new();
                // +1800000000.123456 [0 127.0.0.1:4711] "EVALSHA" "…" "1" "ha:…"
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if line.contains(LAST_CALL) {
                        break;
                    }
                    let asks = line.contains("\"EVALSHA\"") || line.contains("\"EVAL\"");
                    if let Some((seconds, micros)) =
                        line[1..].split(' ').next().and_then(|time| time.split_once('.'))
                        && asks
                        && !line.contains("lua]")
                    {
                        let (seconds, micros): (u64, u64) =
                            (seconds.parse().unwrap(), micros.parse().unwrap());
                        seen_us.push(seconds * 1_000_000 + micros);
                    }
                }
                seen_us
            });
            Self { seen_us }
        }

        /// How many requests a single thread with one log admits. Its window is a millisecond shorter, because the
        /// store reads its clock shortly before it logs the call.
        fn admitted_by_one_thread(self, server: &RedisServer) -> usize {
            server.command::<String>(&["ECHO", LAST_CALL]);
            let window_us = u64::try_from((WINDOW - Duration::from_millis(1)).as_micros()).unwrap();
            let (mut log, mut admitted) = (std::collections::VecDeque::new(), 0);
            for arrived_us in self.seen_us.join().unwrap() {
                while log.front().is_some_and(|first| *first + window_us <= arrived_us) {
                    log.pop_front();
                }
                if log.len() < LIMIT_OF_RULE {
                    log.push_back(arrived_us);
                    admitted += 1;
                }
            }
            admitted
        }
    }
}
