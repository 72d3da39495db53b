//! Three callers knock ten times each; each may pass five times a second, with no more than three at once.
//!
//!     cargo run                                                    on the embedded store
//!     HOB_REDIS_URL=redis://127.0.0.1:6379 cargo run                     on Redis, shared with other processes

use std::time::Duration;

use hob_store::limit::{Algorithm, Decision, Rule};
use hob_store::{Address, Store};

#[tokio::main]
async fn main() -> hob_store::Result<()> {
    let store = Store::connect(&Address::from_env()?).await?;
    let rule = Rule::new(Algorithm::Gcra, vec!["5/1s burst 3".parse()?])?;
    for round in 1..=10 {
        for caller in ["ann", "ben", "cleo"] {
            let key = format!("example:limit:{caller}");
            match rule.take(&store, &[&key], 1).await? {
                Decision::Allowed(quota) => println!("{round:2} {caller}: in, {} left", quota.remaining),
                Decision::Denied { retry_after, .. } => println!("{round:2} {caller}: wait {retry_after:?}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
