//! Sizes as people write them: `4096`, `64KiB`, `1.5GiB`. Only powers of 1024, since that is what disks are made of.

const UNITS: [(&str, u64); 5] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Reads a size. The error says what was expected and what was found.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = factor(unit.trim())
        .ok_or_else(|| format!("expected a size in bytes, KiB, MiB, GiB or TiB, such as 10GiB, found {text:?}"))?;
    let too_big = || format!("expected a size below 16 EiB (2^64 bytes), found {text:?}");
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) {
        return Err(format!("expected a size such as 10GiB or 1.5GiB, found {text:?}"));
    }
    let whole: u64 = whole.parse().map_err(|_| too_big())?;
    let bytes = whole.checked_mul(unit).ok_or_else(too_big)?;
    bytes.checked_add(part(fraction, unit, text)?).ok_or_else(too_big)
}

fn factor(unit: &str) -> Option<u64> {
    if unit.is_empty() {
        return Some(1);
    }
    let known = |(name, _): &&(&str, u64)| unit.eq_ignore_ascii_case(name) || unit.eq_ignore_ascii_case(&name[..1]);
    UNITS.iter().find(known).map(|&(_, bytes)| bytes)
}

/// The bytes behind the point, exactly or not at all.
fn part(digits: &str, unit: u64, text: &str) -> Result<u64, String> {
    if digits.is_empty() {
        return Ok(0);
    }
    let inexact = || format!("expected a whole number of bytes, found {text:?}");
    let scale = u32::try_from(digits.len()).ok().and_then(|n| 10u128.checked_pow(n)).ok_or_else(inexact)?;
    let digits: u128 = digits.parse().map_err(|_| inexact())?;
    let product = digits.checked_mul(u128::from(unit)).ok_or_else(inexact)?;
    if product % scale != 0 {
        return Err(inexact());
    }
    u64::try_from(product / scale).map_err(|_| inexact())
}

/// A size as people read it: exact where it is a round number, else with one decimal and the bytes left out.
pub fn show(bytes: u64) -> String {
    let (name, unit) = UNITS.iter().rev().find(|(_, unit)| bytes >= *unit).unwrap_or(&UNITS[0]);
    if bytes.is_multiple_of(*unit) {
        return format!("{} {name}", bytes / unit);
    }
    let tenths = u128::from(bytes) * 10 / u128::from(*unit);
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::{parse, show};

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("64KiB", 65536), ("10GiB", 10 << 30), ("1.5GiB", 3 << 29), ("2 TiB", 2 << 40)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn senseless_sizes_are_refused_with_what_was_found() {
        for text in ["", "GiB", "1.", ".5GiB", "-1", "10GB", "1e3", "0.3", "16777216TiB", "18446744073709551616"] {
            let error = parse(text).expect_err(text);
            assert!(error.contains("expected") && error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn sizes_are_shown() {
        assert_eq!(show(0), "0 B");
        assert_eq!(show(4 << 30), "4 GiB");
        assert_eq!(show(1536 << 20), "1.5 GiB");
        assert_eq!(show(u64::MAX), "16777215.9 TiB");
    }
}
