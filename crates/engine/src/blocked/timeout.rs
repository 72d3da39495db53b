//! The timeout argument of a blocking command.

use crate::engine::Core;
use crate::number::{LongDouble, read_int};
use crate::reply::{CommandResult, Failure};

const NEGATIVE: Failure = Failure::new("ERR timeout is negative");

/// The deadline for a timeout in seconds with decimals; `None` for 0, which is forever.
pub(crate) fn timeout_seconds(core: &Core, text: &[u8]) -> CommandResult<Option<u64>> {
    let seconds =
        LongDouble::read(text).ok_or(Failure::new("ERR timeout is not a float or out of range"))?.to_f64();
    let millis = (seconds * 1000.0).ceil();
    // Redis returns the same error for a timeout that is too large for its integers.
    if millis >= i64::MAX as f64 {
        return Err(NEGATIVE);
    }
    deadline(core, millis as i64)
}

/// The deadline for a timeout in milliseconds; `None` for 0, which is forever.
pub(crate) fn timeout_ms(core: &Core, text: &[u8]) -> CommandResult<Option<u64>> {
    let millis = read_int(text).ok_or(Failure::new("ERR timeout is not an integer or out of range"))?;
    deadline(core, millis)
}

fn deadline(core: &Core, millis: i64) -> CommandResult<Option<u64>> {
    let millis = u64::try_from(millis).map_err(|_| NEGATIVE)?;
    Ok((millis > 0).then(|| core.now_us.saturating_add(millis.saturating_mul(1000))))
}
