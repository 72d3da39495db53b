//! Scheduled backups: a file for each interval, of which the newest are kept.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use hob_database::{Database, private_file};
use hob_service::{ServiceContext, Task};
use jiff::Timestamp;

use crate::config::DatabaseConfig;

/// Pause after a backup that failed.
const RETRY: Duration = Duration::from_secs(60);
/// The longest wait, so that the task is seen to be alive and a changed clock is noticed.
const MAX_WAIT: Duration = Duration::from_secs(60);

const PREFIX: &str = "hob-";
const SUFFIX: &str = ".db";
const TIME: &str = "%Y-%m-%dT%H-%M-%SZ";

/// Where and how often to back up.
#[derive(Clone, Debug)]
struct Schedule {
    folder: PathBuf,
    interval: Duration,
    keep: usize,
}

/// Starts the task, if a folder is configured.
pub(crate) fn start(context: &ServiceContext, config: &DatabaseConfig) {
    let Some(folder) = config.backup_folder.clone() else { return };
    let schedule =
        Schedule { folder, interval: config.backup_interval.get(), keep: config.backup_keep as usize };
    let database = context.database.clone();
    context.tasks.spawn("database backups", move |task: Task| {
        let (schedule, database) = (schedule.clone(), database.clone());
        async move { run(&schedule, &database, &task).await }
    });
}

async fn run(schedule: &Schedule, database: &Database, task: &Task) {
    loop {
        let pause = match schedule.back_up_if_due(database).await {
            Ok(wait) => wait,
            Err(error) => {
                metrics::counter!("hob_database_backup_failures_total").increment(1);
                let error = format!("{error:#}");
                tracing::warn!(folder = %schedule.folder.display(), error, "failed to back up the database, retrying");
                RETRY
            }
        };
        task.heartbeat();
        if !task.pause(pause.min(MAX_WAIT)).await {
            return;
        }
    }
}

impl Schedule {
    /// Returns how long to wait until the next backup.
    async fn back_up_if_due(&self, database: &Database) -> Result<Duration> {
        let existing = backups(&self.folder)?;
        if let Some((time, _)) = existing.last() {
            metrics::gauge!("hob_database_backup_timestamp_seconds").set(time.as_second() as f64);
            let age = Timestamp::now().duration_since(*time);
            // A backup from the future was made before the clock was set back: it says nothing about its age.
            if let Ok(age) = Duration::try_from(age)
                && age < self.interval
            {
                return Ok(self.interval - age);
            }
        }
        let time = Timestamp::now();
        let file = self.folder.join(format!("{PREFIX}{}{SUFFIX}", time.strftime(TIME)));
        database.backup(&file).await.with_context(|| format!("cannot write {}", file.display()))?;
        metrics::gauge!("hob_database_backup_timestamp_seconds").set(time.as_second() as f64);
        tracing::info!(file = %file.display(), "database backed up");
        let existing = backups(&self.folder)?;
        let excess = existing.len().saturating_sub(self.keep);
        for (_, old) in &existing[..excess] {
            std::fs::remove_file(old).with_context(|| format!("cannot delete {}", old.display()))?;
        }
        Ok(self.interval)
    }
}

/// The backups in a folder, the oldest first. Other files are ignored.
fn backups(folder: &Path) -> Result<Vec<(Timestamp, PathBuf)>> {
    private_file::create_folder(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let files = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut found: Vec<_> =
        files.flatten().map(|file| file.path()).filter_map(|file| Some((time(&file)?, file))).collect();
    found.sort();
    Ok(found)
}

/// When a backup was made, from its name.
fn time(file: &Path) -> Option<Timestamp> {
    let text = file.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    jiff::civil::DateTime::strptime(TIME, text).ok()?.in_tz("UTC").ok().map(|time| time.timestamp())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::time;

    #[test]
    fn only_names_of_backups_have_a_time() {
        let of = |name: &str| time(&Path::new("backups").join(name)).map(|time| time.to_string());
        assert_eq!(of("hob-2026-11-18T01-05-00Z.db").as_deref(), Some("2026-11-18T01:05:00Z"));
        for other in [
            "hob.db",
            "hob-2026-11-18T01-05-00Z.db.partial",
            "hob-before-upgrade.db",
            "old-2026-11-18T01-05-00Z.db",
            "hob-2026-13-18T01-05-00Z.db",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
