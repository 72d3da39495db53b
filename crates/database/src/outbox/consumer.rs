//! A consumer that misses nothing, however long it was away.

use super::{Replay, Topic, after, bounds};
use crate::connection::Isolation;
use crate::{Database, Error, Read as _, Transaction, sql};

/// Reads a topic from where it left off, under a name of its own. Every event comes at least once.
///
/// Several processes under one name do the same work several times; one at a time is for them to arrange.
#[derive(Clone, Debug)]
pub struct Consumer {
    database: Database,
    name: &'static str,
    topic: Topic,
}

/// Where a consumer begins that was never there before.
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
            .write_with(Isolation::Committed, |tx| async move {
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

    /// The next events, `limit` at most: the same ones until they are acknowledged.
    ///
    /// A consumer that was away for longer than events are kept is told what it missed; it goes on once it
    /// has acknowledged `oldest - 1` or `newest`.
    pub async fn next_batch(&self, limit: u16) -> Result<Replay, Error> {
        after(&self.database, self.topic, self.position().await?, limit).await
    }

    /// Says that all events up to `number` are dealt with.
    pub async fn ack(&self, number: u64) -> Result<(), Error> {
        let work = |tx| async move { self.ack_in(&tx, number).await };
        self.database.write_with(Isolation::Committed, work).await
    }

    /// [`Consumer::ack`] in the very transaction that deals with the events, which then happens once.
    pub async fn ack_in(&self, tx: &Transaction, number: u64) -> Result<(), Error> {
        let ack = sql("UPDATE hob_outbox_consumer SET position = $3, acked_at = $4
                       WHERE name = $1 AND topic = $2 AND position < $3");
        tx.execute(ack.bind(self.name).bind(self.topic.0).bind(number).bind(tx.now())).await?;
        Ok(())
    }

    /// The last number that was acknowledged.
    pub async fn position(&self) -> Result<u64, Error> {
        let position = sql("SELECT position FROM hob_outbox_consumer WHERE name = $1 AND topic = $2");
        let (position,) = self.database.one(position.bind(self.name).bind(self.topic.0)).await?;
        Ok(position)
    }

    /// Leaves for good: no events are kept for this name any more.
    pub async fn leave(self) -> Result<(), Error> {
        let leave = sql("DELETE FROM hob_outbox_consumer WHERE name = $1 AND topic = $2");
        let leave = leave.bind(self.name).bind(self.topic.0);
        self.database.execute(leave).await.map(drop)
    }
}
