//! Which operators can serve an operation of a program, by what is installed and by chip.
//!
//! Refuses to know: how operators are called.

use thiserror::Error;

use crate::ascend::library::{Chip, Version};

/// What a program needs done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Need {
    /// Rows of the embedding table.
    Embed,
    /// A factor on the embedding.
    Scale,
    /// Norms.
    Norm,
    /// A residual addition with the norm behind it.
    AddNorm,
    /// Matrix products.
    MatMul,
    /// Matrix products with a bias.
    BiasedMatMul,
    /// Rotary embedding of query and key.
    Rope,
    /// Rotary embedding of one of them alone.
    RopeAlone,
    /// Writing the KV cache.
    WriteKv,
    /// Attention over the paged cache.
    Attention,
    /// Gates with `x * sigmoid(x)`.
    SiluGate,
    /// Gates with GELU.
    GeluGate,
    /// Residual additions.
    Add,
    /// Rows whose logits are wanted.
    TakeRows,
    /// Logits in single precision.
    Cast,
}

/// A way to serve a need: every one of these operators has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ascend) struct Candidate {
    pub(in crate::ascend) operators: &'static [&'static str],
    /// The release that brought it.
    since: &'static str,
    /// Y where it runs: 950, A3, A2, 310B, 310P, 910A.
    products: &'static str,
}

/// A need that nothing installed serves.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "the program's {need:?} needs {wanted}, and CANN {version} on {chip} offers none of them; install a newer CANN with \
     the operator package of this chip, or use another device"
)]
pub struct MissingOperator {
    /// What cannot be done.
    pub need: Need,
    /// The operators that would do it, with the release that brought each.
    pub wanted: String,
    /// The installed release.
    pub version: String,
    /// The chip.
    pub chip: String,
}

/// What is there.
pub(in crate::ascend) struct Installed<'a> {
    pub(in crate::ascend) has: &'a dyn Fn(&str) -> bool,
    /// Absent for a chip of no known family: then presence alone decides.
    pub(in crate::ascend) chip: Option<Chip>,
    pub(in crate::ascend) version: Option<&'a Version>,
}

macro_rules! candidate {
    ($operators:expr, $since:expr, $products:literal) => {
        Candidate { operators: &$operators, since: $since, products: $products }
    };
}

impl Need {
    /// The ways to serve it, the best first. 310P runs additions although its documentation does not say so.
    pub(in crate::ascend) const fn candidates(self) -> &'static [Candidate] {
        const NEW: &str = "8.3";
        match self {
            Self::Embed => &[candidate!(["aclnnEmbedding"], "8.1", "YYYYYY")],
            Self::Scale => &[candidate!(["aclnnMuls"], "8.1", "YYYnYY")],
            Self::Norm => &[candidate!(["aclnnRmsNorm"], "8.1", "YYYnYn")],
            Self::AddNorm => &[
                candidate!(["aclnnAddRmsNorm"], "8.1", "YYYnYn"),
                candidate!(["aclnnInplaceAdd", "aclnnRmsNorm"], "8.1", "YYYnYn"),
            ],
            Self::MatMul => &[candidate!(["aclnnMm"], "8.1", "YYYnYY")],
            Self::BiasedMatMul => &[
                candidate!(["aclnnAddmm"], "8.1", "YYYnYY"),
                candidate!(["aclnnMm", "aclnnInplaceAdd"], "8.1", "YYYnYY"),
            ],
            Self::Rope => &[
                candidate!(["aclnnApplyRotaryPosEmbV2"], NEW, "YYYnYn"),
                candidate!(["aclnnApplyRotaryPosEmb"], "8.1", "YYYnYn"),
                candidate!(["aclnnRotaryPositionEmbedding"], NEW, "YYYnYn"),
            ],
            Self::RopeAlone => &[candidate!(["aclnnRotaryPositionEmbedding"], NEW, "YYYnYn")],
            Self::WriteKv => &[
                candidate!(["aclnnScatterPaKvCache"], NEW, "YYYnnn"),
                candidate!(["aclnnScatterNdUpdate"], "8.1", "YYYnnn"),
            ],
            Self::Attention => &[
                candidate!(["aclnnFusedInferAttentionScoreV3"], "8.1", "nYYnnn"),
                candidate!(["aclnnFusedInferAttentionScoreV2"], "8.1", "nYYnnn"),
                candidate!(["aclnnFusedInferAttentionScore"], "8.1", "nnYnnn"),
            ],
            Self::SiluGate => &[
                candidate!(["aclnnSwiGlu"], "8.1", "YYYnYn"),
                candidate!(["aclnnSilu", "aclnnMul"], "8.1", "YYYnYY"),
            ],
            Self::GeluGate => &[candidate!(["aclnnGeluV2", "aclnnMul"], "8.1", "YYYnYY")],
            Self::Add => &[candidate!(["aclnnInplaceAdd"], "8.1", "YYYnYY")],
            Self::TakeRows => &[
                candidate!(["aclnnIndexSelect"], "8.1", "YYYnYY"),
                candidate!(["aclnnGatherV2"], "8.1", "YYYnYY"),
            ],
            Self::Cast => &[candidate!(["aclnnCast"], "8.1", "YYYnYY")],
        }
    }
}

impl Installed<'_> {
    /// The first operator of the best candidate that is there.
    pub(in crate::ascend) fn choose(&self, need: Need) -> Result<&'static str, MissingOperator> {
        let serves = |candidate: &&Candidate| {
            self.chip.is_none_or(|chip| candidate.runs_on(chip))
                && candidate.operators.iter().all(|operator| (self.has)(operator))
        };
        let chosen = need.candidates().iter().find(serves).and_then(|found| found.operators.first());
        chosen.copied().ok_or_else(|| self.missing(need))
    }

    fn missing(&self, need: Need) -> MissingOperator {
        let wanted = need.candidates().iter().map(|candidate| {
            format!("{} (since CANN {})", candidate.operators.join(" with "), candidate.since)
        });
        MissingOperator {
            need,
            wanted: wanted.collect::<Vec<_>>().join(" or "),
            version: self.version.map_or_else(|| "of an unknown release".to_owned(), ToString::to_string),
            chip: self.chip.map_or("this chip", Chip::name).to_owned(),
        }
    }
}

impl Candidate {
    fn runs_on(&self, chip: Chip) -> bool {
        let place = match chip {
            Chip::A950 => 0,
            Chip::A3 => 1,
            Chip::A2 => 2,
            Chip::P310B => 3,
            Chip::P310P => 4,
            Chip::A910 => 5,
        };
        self.products.as_bytes().get(place) == Some(&b'Y')
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test is what it is for")]

    use super::*;

    #[test]
    fn the_best_installed_operator_is_chosen() {
        let version = Version::parse("8.1.RC1");
        let old = |name: &str| !name.contains("ScatterPa") && !name.ends_with("EmbV2");
        let installed = Installed { has: &old, chip: Some(Chip::A2), version: version.as_ref() };
        assert_eq!(installed.choose(Need::WriteKv), Ok("aclnnScatterNdUpdate"));
        assert_eq!(installed.choose(Need::Rope), Ok("aclnnApplyRotaryPosEmb"));
        let installed = Installed { has: &|_| true, ..installed };
        assert_eq!(installed.choose(Need::WriteKv), Ok("aclnnScatterPaKvCache"));
    }

    #[test]
    fn a_chip_that_lacks_an_operator_is_told_what_would_do() {
        let version = Version::parse("8.1.RC1");
        let installed = Installed { has: &|_| true, chip: Some(Chip::P310P), version: version.as_ref() };
        let message = installed.choose(Need::Attention).unwrap_err().to_string();
        for part in ["Attention", "aclnnFusedInferAttentionScoreV3 (since CANN 8.1)", "8.1.RC1", "310P"] {
            assert!(message.contains(part), "{message}");
        }
        let message = installed.choose(Need::WriteKv).unwrap_err().to_string();
        assert!(
            message.contains("aclnnScatterPaKvCache (since CANN 8.3) or aclnnScatterNdUpdate"),
            "{message}"
        );
    }
}
