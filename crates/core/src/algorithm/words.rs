//! Enums whose values are words of policies.

/// Declares an enum, a value of which is written as a word in policies: `WORDS` has all values and
/// their words, and `word` returns the word of one.
#[macro_export]
macro_rules! words {
    ($(#[$about:meta])* $visibility:vis enum $name:ident {
        $($(#[$of_one:meta])* $value:ident = $word:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $name {
            $($(#[$of_one])* $value,)+
        }

        impl $name {
            /// All values, each with its word.
            $visibility const WORDS: &'static [(&'static str, Self)] =
                &[$(($word, Self::$value)),+];

            /// Returns the word of policies.
            $visibility const fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }
    };
}

pub use words;
