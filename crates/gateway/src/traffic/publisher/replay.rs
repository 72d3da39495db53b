//! Counts requests of the past, for the demo.

use super::Publisher;
use super::flush::Flush;
use crate::Error;
use crate::traffic::counts::Counts;

impl Publisher {
    /// Counts requests as if each of these counts had been flushed at its time, in Unix milliseconds.
    pub(crate) async fn replay(&mut self, past: Vec<(u64, Counts)>) -> Result<(), Error> {
        self.flush().await?;
        if self.epoch.is_none_or(|epoch| epoch.get() == 0) {
            // The first epoch begins now, so that no flush below finds the shard lost and is counted later.
            self.recover_shard().await?;
        }
        for (at_ms, counts) in past {
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
}
