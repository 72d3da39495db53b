//! Replaces the embedded engine if the feature `embedded` is off: the types have no values, so their methods cannot be
//! called, and creating an engine returns an error.

use std::future::Ready;
use std::ops::Range;

use redis::Value;
use tokio::time::Instant;

use crate::bus::{BusEvent, ChannelFilter};
use crate::error::{Error, Result};
use crate::script::Call;

#[derive(Debug)]
pub(crate) enum Embedded {}

impl Embedded {
    pub(crate) fn open() -> Result<Self> {
        Err(Error::Address(
            "embedded:// is not available in this program, which was built without the feature `embedded` of \
             hob-store; use the address of a Redis, such as redis://127.0.0.1:6379, or build with the feature"
                .to_owned(),
        ))
    }

    pub(crate) fn call(&self, _: &Call, _: Range<Instant>) -> Ready<Result<Value>> {
        match *self {}
    }

    pub(crate) fn call_all(&self, _: &[Call], _: Range<Instant>) -> Ready<Vec<Result<Value>>> {
        match *self {}
    }

    pub(crate) fn subscribe(&self, _: &[ChannelFilter]) -> EmbeddedReceiver {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) enum EmbeddedReceiver {}

impl EmbeddedReceiver {
    pub(crate) fn next(&mut self) -> Ready<Option<BusEvent>> {
        match *self {}
    }
}
