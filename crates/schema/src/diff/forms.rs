//! How the values that a form accepts relate to those of an earlier version of the form.
//!
//! If it is not certain that one form accepts everything that the other accepts, the answer is [`Fit::Other`], the
//! careful one.

use crate::model::Schema;
use crate::model::id::{IdForm, IdRule};
use crate::model::value::{JsonForm, Value};

/// The new form, compared with the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    Same,
    /// Accepts everything that the old one accepts, and more.
    Wider,
    /// Accepts only a part of what the old one accepts.
    Narrower,
    Other,
}

/// From whether the new form accepts all old values, and the old form all new values.
fn fit(new_accepts_old: bool, old_accepts_new: bool) -> Fit {
    match (new_accepts_old, old_accepts_new) {
        (true, true) => Fit::Same,
        (true, false) => Fit::Wider,
        (false, true) => Fit::Narrower,
        (false, false) => Fit::Other,
    }
}

pub(super) fn id_fit(old: &IdRule, new: &IdRule) -> Fit {
    fit(id_accepts(new, old), id_accepts(old, new))
}

/// Whether every key with an id of `narrow` has the same id under `wide`.
fn id_accepts(wide: &IdRule, narrow: &IdRule) -> bool {
    if !wide.not.iter().all(|word| narrow.not.contains(word) || narrow.check(word).is_err()) {
        return false;
    }
    match (&wide.form, &narrow.form) {
        (IdForm::OneOf(wide), IdForm::OneOf(narrow)) => narrow.iter().all(|word| wide.contains(word)),
        (_, IdForm::OneOf(words)) => words.iter().all(|word| wide.check(word).is_ok()),
        (
            IdForm::Int { min, max, step },
            IdForm::Int { min: narrow_min, max: narrow_max, step: narrow_step },
        ) => min <= narrow_min && max >= narrow_max && narrow_step.is_multiple_of(*step),
        (IdForm::Text(_), IdForm::Int { .. }) => wide.max >= 20,
        (IdForm::Text(_), IdForm::Hour) => wide.max >= 13,
        (wide_form, narrow_form) => wide_form == narrow_form && wide.max >= narrow.max,
    }
}

pub(super) fn value_fit(old: (&Value, &Schema), new: (&Value, &Schema)) -> Fit {
    fit(value_accepts(new, old), value_accepts(old, new))
}

fn value_accepts(wide: (&Value, &Schema), narrow: (&Value, &Schema)) -> bool {
    // The longest whole number of 64 bits, with its sign.
    const NUMBER_BYTES: u64 = 20;
    match (wide.0, narrow.0) {
        (Value::Any, _) => true,
        (Value::Int { min, max }, Value::Int { min: narrow_min, max: narrow_max }) => {
            min <= narrow_min && max >= narrow_max
        }
        (
            Value::Int { min: i64::MIN, max: i64::MAX },
            Value::UnixSeconds | Value::UnixMillis | Value::Bool,
        ) => true,
        (Value::Float { min, max }, Value::Float { min: narrow_min, max: narrow_max }) => {
            min <= narrow_min && max >= narrow_max
        }
        (Value::Float { min, max }, Value::Int { min: narrow_min, max: narrow_max }) => {
            *min <= *narrow_min as f64 && *max >= *narrow_max as f64
        }
        (Value::OneOf(wide), Value::OneOf(narrow)) => narrow.iter().all(|word| wide.contains(word)),
        (Value::Iso8601, Value::Rfc3339) => true,
        (Value::Text { max_bytes }, Value::Text { max_bytes: narrow }) => max_bytes >= narrow,
        (Value::Text { max_bytes }, Value::OneOf(words)) => {
            words.iter().all(|word| word.len() as u64 <= *max_bytes)
        }
        (
            Value::Text { max_bytes },
            Value::Int { .. } | Value::Bool | Value::UnixSeconds | Value::UnixMillis,
        ) => *max_bytes >= NUMBER_BYTES,
        (Value::Text { max_bytes }, Value::Json { max_bytes: narrow, .. })
        | (Value::MsgPack { max_bytes }, Value::MsgPack { max_bytes: narrow })
        | (Value::Protobuf { max_bytes }, Value::Protobuf { max_bytes: narrow }) => max_bytes >= narrow,
        // A bitmap is any string.
        (Value::Bitmap { max_bytes }, narrow) => {
            narrow.max_bytes().is_some_and(|narrow| *max_bytes >= narrow)
        }
        (Value::Int { min, max }, Value::Geo) => *min <= 0 && *max >= 1 << 52,
        (Value::Float { min, max }, Value::Geo) => *min <= 0.0 && *max >= (1_u64 << 52) as f64,
        (Value::Json { form, max_bytes }, Value::Json { form: narrow_form, max_bytes: narrow }) => {
            max_bytes >= narrow && json_accepts(form, narrow_form)
        }
        (Value::Id(wide_id), Value::Id(narrow_id)) => {
            id_accepts(&wide.1.ids[*wide_id], &narrow.1.ids[*narrow_id])
        }
        (wide, narrow) => wide == narrow && !matches!(wide, Value::Id(_)),
    }
}

pub(super) fn json_fit(old: &JsonForm, new: &JsonForm) -> Fit {
    fit(json_accepts(new, old), json_accepts(old, new))
}

/// Shapes of the same name count as equal here; edits of a shape are reported for the shape.
fn json_accepts(wide: &JsonForm, narrow: &JsonForm) -> bool {
    match (wide, narrow) {
        (JsonForm::Any, _)
        | (JsonForm::Text, JsonForm::Rfc3339 | JsonForm::Iso8601 | JsonForm::OneOf(_))
        | (JsonForm::Number, JsonForm::Int | JsonForm::UnixSeconds | JsonForm::UnixMillis)
        | (JsonForm::Iso8601, JsonForm::Rfc3339) => true,
        (JsonForm::OneOf(wide), JsonForm::OneOf(narrow)) => narrow.iter().all(|word| wide.contains(word)),
        (JsonForm::List(wide), JsonForm::List(narrow)) => json_accepts(wide, narrow),
        (wide, narrow) => wide == narrow,
    }
}
