//! Whole numbers where floats would round.

use kerf_model::Price;

/// So many units of a price, as far as there are that many.
pub(crate) fn price(units: i128) -> Price {
    Price::from_ten_billionths(i64::try_from(units).unwrap_or(i64::MAX))
}

/// A quotient rounded up, of what is not negative by what is positive.
pub(crate) fn ceiling(numerator: i128, denominator: i128) -> i128 {
    numerator / denominator + i128::from(numerator % denominator > 0)
}

/// Of two numbers that are not negative, the second not zero.
pub(crate) fn greatest_common_divisor(mut a: i128, mut b: i128) -> i128 {
    while a != 0 {
        (a, b) = (b % a, a);
    }
    b
}
