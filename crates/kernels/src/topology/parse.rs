//! The kernel's lists of processors: `0-3,8,10-11`.

/// Processors a list may name at most, so that a damaged one does no harm.
const PROCESSORS_MAX: usize = 1 << 16;

/// The numbers in a list, in its order; none when it is not one.
pub(super) fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || last >= PROCESSORS_MAX {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// The shortest list of ascending numbers.
pub(super) fn shown(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let run = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    runs.into_iter().map(run).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for list in ["", "0", "0-1", "0-3,8,10-11", "5,7,9-12"] {
            assert_eq!(shown(&cpu_list(&format!("{list}\n")).unwrap()), list);
        }
        assert_eq!(cpu_list("2-4,0"), Some(vec![2, 3, 4, 0]));
    }

    #[test]
    fn what_is_no_list_is_none() {
        for text in ["a", "3-1", "1-", "-", "0-99999999999", "0-99999999", "1;2"] {
            assert_eq!(cpu_list(text), None, "{text}");
        }
    }
}
