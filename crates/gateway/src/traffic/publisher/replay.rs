//! Counts requests of the past, for the demo.

use std::collections::BTreeMap;

use super::Publisher;
use super::checkpoint;
use super::flush::Flush;
use crate::Error;
use crate::database::{self, Totals};
use crate::traffic::counts::Counts;

impl Publisher {
    /// Counts requests as if each of the counts of `day` had been flushed at its time, in Unix milliseconds. Those of
    /// `earlier` began at their time; they are in the database only, and in the totals.
    pub(crate) async fn replay(
        &mut self,
        earlier: Vec<(u64, Counts)>,
        day: Vec<(u64, Counts)>,
    ) -> Result<(), Error> {
        self.flush().await?;
        if self.epoch.is_none_or(|epoch| epoch.get() == 0) {
            self.save_earlier(earlier).await?;
            // The first epoch begins now, so that no flush below finds the shard lost and is counted later.
            self.recover_shard().await?;
        }
        for (at_ms, counts) in day {
            let Some(epoch) = self.epoch else { break };
            self.flush_number += 1;
            let flush = Flush::new(self.flush_number, counts);
            let context = (&self.names, &*self.sources.traffic.meter);
            let clock_us = (at_ms * 1000).to_string();
            let call = flush.call(&self.destination, epoch, (at_ms, &clock_us), context);
            let reply = self.sources.store.run(call).await?;
            self.pending_flush = Some(flush);
            self.handle_flush_reply(reply).await?;
        }
        // The replies had times of the past.
        self.store_time = None;
        Ok(())
    }

    async fn save_earlier(&self, earlier: Vec<(u64, Counts)>) -> Result<(), Error> {
        let (mut totals, mut hours) = (Totals::new(), BTreeMap::new());
        for (start_ms, counts) in earlier {
            for (endpoint, counted) in &counts.endpoints {
                checkpoint::add_totals(&mut totals, &self.names.name(*endpoint), &counted.totals);
            }
            hours.insert(start_ms, counts.sum());
        }
        let shard = self.destination.shard.number();
        let (totals, hours) = (&totals, &hours);
        self.sources
            .database
            .write(|tx| async move {
                database::add_totals(&tx, shard, totals).await?;
                database::add_hours(&tx, shard, hours).await
            })
            .await?;
        Ok(())
    }
}
