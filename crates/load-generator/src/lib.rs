//! An HTTP load generator. A [plan](plan::Plan) says what virtual users request and how often; [`LocalRun`] runs it in this
//! process and measures every response.
//!
//! ```
//! use std::time::Duration;
//!
//! use hob_load_generator::LocalRun;
//! use hob_load_generator::generator::Targets;
//! use hob_load_generator::plan::{LoadModel, Plan};
//! # use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let url = format!("http://{}/", listener.local_addr()?);
//! # tokio::spawn(async move {
//! #     while let Ok((mut stream, _)) = listener.accept().await {
//! #         tokio::spawn(async move {
//! #             let mut request = [0; 4096];
//! #             while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
//! #                 let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
//! #             }
//! #         });
//! #     }
//! # });
//! // 50 requests per second for one second, by at most 10 users.
//! let plan = Plan::quick(&url, LoadModel::rate(50.0, Duration::from_secs(1), 10))?;
//! let mut run = LocalRun::start(plan, 0, &Targets::default(), 1).await?;
//! while let Some(totals) = run.next().await {
//!     println!("second {}: {} requests", totals.seconds(), totals.requests());
//! }
//! let totals = run.totals();
//! assert!(totals.requests() > 0 && totals.failed() == 0);
//! println!("p99 {} µs", totals.intended().quantile_us(0.99));
//! # Ok(())
//! # }
//! ```
//!
//! - [`plan`]: scenarios of requests with checks, variables and thresholds, in TOML or JSON; `docs/load.md` of the repository
//!   describes the language. [`plan::LoadModel`] is a number of users or a rate of arrivals.
//! - [`generator`]: sends a share of the load of a plan, on several threads. Only this machine may be tested, unless
//!   [`generator::Targets`] names other hosts.
//! - [`Second`], [`Totals`]: what was measured. The seconds of several generators can be merged without a loss: the result is
//!   that of one generator.
//!
//! The latency of a request counts from the time for which the plan schedules it, so it includes the wait that a slow server
//! causes. [`Totals::actual`] has the latencies from the time at which requests were sent.
//!
//! With the feature `openapi`, the results that can be serialized have schemas for `utoipa`.

pub mod generator;
mod local;
pub mod plan;
mod results;

pub use local::{Error, LocalRun};
pub use results::histogram::{Bucket, Histogram, LatencyHistogram, LatencySummary};
pub use results::second::{Backoffs, Fault, GeneratorSecond, Second, StepSecond};
pub use results::totals::{HEAT_ROWS, ThresholdResult, TimelinePoint, Totals, per_cent};
