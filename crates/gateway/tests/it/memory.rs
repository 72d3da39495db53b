//! Memory is bounded for any number of spoofed identities and paths.

mod slow {
    use std::net::SocketAddr;

    use hob_fixtures::{Layout, TestContext};
    use hob_gateway::keys::Keys;
    use hob_testkit::budget;
    use http::{HeaderMap, Method};

    use crate::kit::{NEEDS, TestInstance};

    /// How much an instance may grow after a third of the requests.
    const MAX_GROWTH_MIB: u64 = 96;

    fn resident_mib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    }

    /// Ten million spoofed identities and a million paths (fewer in daily runs): a third of them fills all caches, and
    /// the rest needs no more memory.
    #[test]
    #[expect(clippy::print_stdout, reason = "shows the result of a full run")]
    fn memory_is_bounded_under_spoofed_identities_and_paths() {
        hob_testkit::run(async {
            // The store is another process: its keys expire and are not the instance's memory.
            let context = TestContext::redis(NEEDS).await;
            let rules = "trusted_proxies = [\"10.0.0.0/8\"]\n\
                [[rules]]\nname = \"leased\"\nwindows = \"1000/1s burst 2000\"\nexactness = \"leased\"\n\
                on_store_failure = \"local\"\nlease = \"100ms\"\n";
            let instance = TestInstance::start(&context, &format!("store_timeout = \"50ms\"\n{rules}")).await;
            let hob_fixtures::Server::Redis(server) = context.test_store().server() else {
                panic!("no redis")
            };
            // While the store is frozen, every caller is in the instance's memory. A store would take hours for all of
            // them.
            server.freeze();
            let identities = budget(300_000_u32, 10_000_000);
            let paths = identities / 10;
            let proxy = SocketAddr::from(([10, 0, 0, 1], 1));
            let mut early = 0;
            for number in 0..identities {
                let mut headers = HeaderMap::new();
                let claimed = std::net::Ipv4Addr::from_bits(0x1400_0000 + number);
                headers.insert("x-forwarded-for", claimed.to_string().parse().unwrap());
                let path = format!("/made/up/{}", number % paths);
                let admission = instance.gateway.admission();
                admission.admit(proxy, &Method::GET, &path, &headers).await.finish(http::StatusCode::OK);
                if number == identities / 3 {
                    early = resident_mib();
                }
            }
            let late = resident_mib();
            println!(
                "{identities} identities, {paths} paths: {early} MiB after a third, {late} MiB in the end"
            );
            assert!(late <= early + MAX_GROWTH_MIB, "{early} MiB grew to {late} MiB");
            server.unfreeze();
            // All were counted, under 1,000 endpoints and `other`.
            instance.expect(u64::from(identities), Keys::requests_total).await;
            assert!(instance.gateway.statistics().endpoints().await.unwrap().len() <= 1001);
        });
    }

    /// Tagged keys are bounded too.
    #[test]
    fn tagged_layout_is_bounded() {
        hob_testkit::run(async {
            let context = TestContext::embedded(NEEDS, Layout::Tagged).await;
            let instance = TestInstance::start(&context, "").await;
            for number in 0..3000 {
                instance.request(Method::GET, &format!("/made/up/{number}"), 200).await;
            }
            instance.expect(3000, Keys::requests_total).await;
            assert!(instance.gateway.statistics().endpoints().await.unwrap().len() <= 1001);
        });
    }
}
