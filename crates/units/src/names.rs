//! Names of enum values, as they are stored, configured and shown.

/// Gives each value of an enum without fields its name. Creates `ALL`, in the order of the list, `as_str`, `Display` and
/// `FromStr`; the enum must be `Copy`.
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum State {
///     Up,
///     Down,
/// }
///
/// hob_units::names!(State { Up = "up", Down = "down" });
///
/// assert_eq!(State::Down.as_str(), "down");
/// assert_eq!("up".parse(), Ok(State::Up));
/// assert_eq!("UP".parse::<State>().unwrap_err().to_string(), "\"UP\" is not one of up, down");
/// ```
#[macro_export]
macro_rules! names {
    ($type:ident { $($value:ident = $name:literal),+ $(,)? }) => {
        #[allow(dead_code, unreachable_pub, reason = "enums may be private, and not all need everything")]
        impl $type {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }

        impl ::core::fmt::Display for $type {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::core::str::FromStr for $type {
            type Err = $crate::UnknownName;

            fn from_str(name: &str) -> ::core::result::Result<Self, $crate::UnknownName> {
                match name {
                    $($name => Ok(Self::$value),)+
                    _ => Err($crate::UnknownName::new(name, &[$($name),+])),
                }
            }
        }
    };
}

/// The text is not the name of a value; see [`names!`](crate::names!).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not one of {}", known.join(", "))]
pub struct UnknownName {
    name: String,
    known: &'static [&'static str],
}

impl UnknownName {
    /// Maximum number of characters of the text that the error repeats.
    const MAX_SHOWN: usize = 100;

    #[must_use]
    pub fn new(name: &str, known: &'static [&'static str]) -> Self {
        Self { name: name.chars().take(Self::MAX_SHOWN).collect(), known }
    }
}

#[cfg(test)]
mod tests {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Level {
        Low,
        High,
    }

    names!(Level { High = "HIGH", Low = "low-level" });

    #[test]
    fn name_is_parsed_back() {
        assert_eq!(Level::ALL, [Level::High, Level::Low]);
        for level in Level::ALL {
            assert_eq!(level.to_string(), level.as_str());
            assert_eq!(level.as_str().parse(), Ok(level));
        }
        assert_eq!(format!("{:>6}", Level::High), "  HIGH");
    }

    #[test]
    fn unknown_name_is_refused_with_the_known_ones() {
        for text in ["", "high", "HIGH ", "Low"] {
            let error = text.parse::<Level>().unwrap_err().to_string();
            assert_eq!(error, format!("{text:?} is not one of HIGH, low-level"));
        }
        let long = "x".repeat(10_000).parse::<Level>().unwrap_err().to_string();
        assert!(long.len() < 200, "{}", long.len());
    }
}
