//! Chip families, by the names that the runtime gives to chips.

/// A family of chips that share operators and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Chip {
    /// `Ascend950…`.
    A950,
    /// `Ascend910_93…` (Atlas A3).
    A3,
    /// `Ascend910B1` and its like (Atlas A2).
    A2,
    /// `Ascend310B…`.
    P310B,
    /// `Ascend310P…`.
    P310P,
    /// The first `Ascend910`.
    A910,
}

impl Chip {
    /// The family of a chip, by the name that the runtime gives it.
    #[must_use]
    pub fn from_soc(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("Ascend")?;
        let numbered = |prefix: &str| {
            rest.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        if rest.starts_with("950") || rest.starts_with("910_95") {
            Some(Self::A950)
        } else if rest.starts_with("910_93") {
            Some(Self::A3)
        } else if numbered("910B") {
            Some(Self::A2)
        } else if rest.starts_with("310P") {
            Some(Self::P310P)
        } else if rest.starts_with("310B") {
            Some(Self::P310B)
        } else if rest.starts_with("910") {
            Some(Self::A910)
        } else {
            None
        }
    }

    /// Name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::A950 => "Ascend 950",
            Self::A3 => "Atlas A3",
            Self::A2 => "Atlas A2",
            Self::P310B => "Ascend 310B",
            Self::P310P => "Ascend 310P",
            Self::A910 => "Ascend 910",
        }
    }

    /// Whether it computes in bfloat16.
    #[must_use]
    pub fn has_bf16(self) -> bool {
        matches!(self, Self::A950 | Self::A3 | Self::A2)
    }

    /// Whether it can capture graphs.
    #[must_use]
    pub fn has_graphs(self) -> bool {
        !matches!(self, Self::P310B | Self::A910)
    }

    /// Hardware streams of a device.
    #[must_use]
    pub fn streams(self) -> u32 {
        match self {
            Self::A950 | Self::A3 | Self::A2 => 1984,
            Self::P310P => 1024,
            Self::P310B => 512,
            Self::A910 => 2048,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Chip;

    #[test]
    fn names_of_chips_tell_the_family() {
        let cases = [
            ("Ascend910B3", Some(Chip::A2)),
            ("Ascend910B4-1", Some(Chip::A2)),
            ("Ascend910_9391", Some(Chip::A3)),
            ("Ascend310P3", Some(Chip::P310P)),
            ("Ascend310B1", Some(Chip::P310B)),
            ("Ascend910ProA", Some(Chip::A910)),
            ("Ascend910B", Some(Chip::A910)),
            ("Ascend950PR_9579", Some(Chip::A950)),
            ("Ascend910_9589", Some(Chip::A950)),
            ("Kirin", None),
        ];
        for (name, chip) in cases {
            assert_eq!(Chip::from_soc(name), chip, "{name}");
        }
    }
}
