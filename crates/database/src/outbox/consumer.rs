//! A durable consumer: its position is stored in the database.

use super::{Replay, Topic, after, bounds};
use crate::connection::Isolation;
use crate::{Database, Error, Read as _, Transaction, sql};

/// Reads a topic from its stored position. Delivers every event at least once.
///
/// If several processes open the same name, each of them gets all events. The caller must ensure that only one of them
/// runs at a time.
#[derive(Clone, Debug)]
pub struct Consumer {
    database: Database,
    name: &'static str,
    topic: Topic,
}

/// Where a new consumer starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    Oldest,
    Newest,
}

impl Consumer {
    pub async fn open(
        database: &Database,
        name: &'static str,
        topic: Topic,
        start: Start,
    ) -> Result<Self, Error> {
        database
            .write_with(Isolation::ReadCommitted, |tx| async move {
                let (newest, forgotten) = bounds(&tx, topic).await?;
                let position = match start {
                    Start::Oldest => forgotten,
                    Start::Newest => newest,
                };
                let add = sql("INSERT INTO hob_outbox_consumer (name, topic, position, acked_at)
                               VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING");
                tx.execute(add.bind(name).bind(topic.0).bind(position).bind(tx.now())).await
            })
            .await?;
        Ok(Self { database: database.clone(), name, topic })
    }

    /// Reads the next events, at most `limit`. Returns the same events until they are acknowledged.
    ///
    /// A consumer that did not read for longer than the retention gets [`Replay::Missed`]. To continue, it acknowledges
    /// `oldest - 1` or `newest`.
    pub async fn next_batch(&self, limit: u16) -> Result<Replay, Error> {
        after(&self.database, self.topic, self.position().await?, limit).await
    }

    /// Acknowledges all events up to `number`.
    pub async fn ack(&self, number: u64) -> Result<(), Error> {
        let work = |tx| async move { self.ack_in(&tx, number).await };
        self.database.write_with(Isolation::ReadCommitted, work).await
    }

    /// [`Consumer::ack`] in the transaction that handles the events, which makes their effect exactly-once.
    pub async fn ack_in(&self, tx: &Transaction, number: u64) -> Result<(), Error> {
        let ack = sql("UPDATE hob_outbox_consumer SET position = $3, acked_at = $4
                       WHERE name = $1 AND topic = $2 AND position < $3");
        tx.execute(ack.bind(self.name).bind(self.topic.0).bind(number).bind(tx.now())).await?;
        Ok(())
    }

    /// Acknowledges the events after `from` up to `to` in the transaction that handles them. `false` if another process has
    /// acknowledged events since: the transaction must then be rolled back.
    pub async fn advance_in(&self, tx: &Transaction, from: u64, to: u64) -> Result<bool, Error> {
        let advance = sql("UPDATE hob_outbox_consumer SET position = $4, acked_at = $5
                           WHERE name = $1 AND topic = $2 AND position = $3");
        let advance = advance.bind(self.name).bind(self.topic.0).bind(from).bind(to).bind(tx.now());
        Ok(tx.execute(advance).await? == 1)
    }

    /// The last acknowledged number.
    pub async fn position(&self) -> Result<u64, Error> {
        let position = sql("SELECT position FROM hob_outbox_consumer WHERE name = $1 AND topic = $2");
        let (position,) = self.database.one(position.bind(self.name).bind(self.topic.0)).await?;
        Ok(position)
    }

    /// Deletes the consumer. Events are then no longer kept for it.
    pub async fn delete(self) -> Result<(), Error> {
        let leave = sql("DELETE FROM hob_outbox_consumer WHERE name = $1 AND topic = $2");
        let leave = leave.bind(self.name).bind(self.topic.0);
        self.database.execute(leave).await.map(drop)
    }
}
