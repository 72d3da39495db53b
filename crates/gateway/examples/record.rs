//! What recording a request costs: `cargo run --release -p hob-gateway --example record`.

use std::time::Instant;

use hob_gateway::{Endpoints, Meter, Outcome};
use http::Method;

const REQUESTS: u32 = 5_000_000;

fn main() {
    let (meter, endpoints) = (Meter::default(), Endpoints::default());
    let ids: Vec<_> =
        (0..16).map(|number| endpoints.id(&Method::GET, &format!("/api/things/{number}"))).collect();
    let (began, busy_before) = (Instant::now(), busy_ns());
    for request in 0..REQUESTS {
        meter.record(ids[request as usize % ids.len()], 200, Outcome::Passed, began, began);
    }
    let each = (busy_ns() - busy_before) / u64::from(REQUESTS);
    #[allow(clippy::print_stdout, reason = "this is what it is for")]
    {
        println!("{each} ns of CPU time to record a request, folding included");
    }
}

/// CPU time of this thread, which does not depend on what else the machine does.
fn busy_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}
