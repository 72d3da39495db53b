//! Numbers with units: `1h 30m`, `4 KiB`.

/// Why a text is not a list of numbers with units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BadQuantity {
    Empty,
    /// A number without a unit.
    NoUnit(String),
    /// Not a whole number: the number is missing, has a sign, or has a fraction.
    NotANumber,
    /// The number does not fit into 64 bits.
    TooLarge,
}

/// Splits `1h 30m` into numbers and units. Spaces are optional everywhere.
pub(crate) fn parse(text: &str) -> Result<Vec<(u64, &str)>, BadQuantity> {
    let mut quantities = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        if number.is_empty() {
            return Err(BadQuantity::NotANumber);
        }
        if after.starts_with(['.', ',']) {
            return Err(BadQuantity::NotANumber);
        }
        let after = after.trim_start();
        let letters = after.bytes().take_while(|byte| is_unit_byte(*byte)).count();
        let (unit, left) = after.split_at(letters);
        if unit.is_empty() {
            return Err(BadQuantity::NoUnit(number.to_owned()));
        }
        quantities.push((number.parse().map_err(|_| BadQuantity::TooLarge)?, unit));
        rest = left.trim_start();
    }
    if quantities.is_empty() { Err(BadQuantity::Empty) } else { Ok(quantities) }
}

/// Letters, including letters such as `µ` that no known unit contains.
fn is_unit_byte(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || !byte.is_ascii()
}
