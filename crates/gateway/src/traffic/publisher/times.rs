//! Response times over a clean stop of the embedded engine, which keeps nothing on disk: they are saved in the database when
//! the gateway stops, and sent again after the next start. Those of the last clean stop stay in the database, so that a killed
//! instance loses only newer ones.

use std::fmt::Write as _;
use std::str::FromStr;
use std::time::Duration;

use hob_admission::EndpointId;
use hob_database::Database;
use hob_units::unix_ms;
use http::Method;

use crate::Error;
use crate::database::{self, SavedTimes};
use crate::traffic::counts::{Counts, EndpointCounts, Minute};
use crate::traffic::endpoints::Endpoints;
use crate::traffic::histogram::Bucket;
use crate::traffic::meter::Meter;

/// Older response times are not sent again. The meter distinguishes 49 days.
const MAX_AGE: Duration = Duration::from_secs(30 * 86_400);

/// Saves the response times of all endpoints, in place of those that were saved before.
pub(crate) async fn save(
    database: &Database,
    shard: u32,
    endpoints: &Endpoints,
    meter: &Meter,
    counts: &Counts,
) -> Result<(), Error> {
    let now_ms = unix_ms();
    let row = |(endpoint, counted): (&EndpointId, &EndpointCounts)| {
        let (mut samples, mut buckets) = (String::new(), String::new());
        for (at_ms, took_us) in &counted.samples {
            let age_ms = meter.age(*at_ms).as_millis() as u64;
            let _ = write!(samples, "{} {took_us} ", now_ms.saturating_sub(age_ms));
        }
        for ((minute, bucket), count) in &counted.buckets {
            // Only counts that were never flushed have no minute.
            if let Minute::Past(minute) = minute {
                let _ = write!(buckets, "{minute} {} {count} ", bucket.index());
            }
        }
        SavedTimes { endpoint: endpoints.name(*endpoint).as_str().to_owned(), samples, buckets }
    };
    let rows: Vec<SavedTimes> = counts.endpoints.iter().map(row).collect();
    let rows = &rows;
    Ok(database.write(|tx| async move { database::replace_times(&tx, shard, rows).await }).await?)
}

/// The response times that were saved last.
pub(crate) async fn load(
    database: &Database,
    shard: u32,
    endpoints: &Endpoints,
    meter: &Meter,
) -> Result<Counts, Error> {
    let now_ms = unix_ms();
    let mut counts = Counts::default();
    for saved in database::times(database, shard).await? {
        let endpoint = match saved.endpoint.split_once(' ') {
            Some((method, path)) => {
                Method::from_str(method).map_or(EndpointId::OTHER, |method| endpoints.id(&method, path))
            }
            None => EndpointId::OTHER,
        };
        let counted = counts.endpoints.entry(endpoint).or_default();
        for sample in numbers(&saved.samples).chunks_exact(2) {
            let age = Duration::from_millis(now_ms.saturating_sub(sample[0]));
            if age < MAX_AGE {
                counted.add_sample(meter.before(age), u32::try_from(sample[1]).unwrap_or(u32::MAX));
            }
        }
        for bucket in numbers(&saved.buckets).chunks_exact(3) {
            let index = u16::try_from(bucket[1]).ok().and_then(Bucket::from_index);
            if let Some(index) = index {
                *counted.buckets.entry((Minute::Past(bucket[0]), index)).or_default() += bucket[2];
            }
        }
    }
    Ok(counts)
}

fn numbers(text: &str) -> Vec<u64> {
    text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}
