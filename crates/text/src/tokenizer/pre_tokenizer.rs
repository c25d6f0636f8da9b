//! How a byte pair vocabulary from a GGUF file cuts text before merging: the rules behind `tokenizer.ggml.pre`.
//!
//! Rules are regular expressions applied one after the other, each to the parts that the one before it left; a part
//! is a match or the text between two matches. Names of one family share their rules. A name that is not known here
//! gets the rules of GPT-2, and the operator is told.

use std::ops::Range;

use tokenizers::utils::SysRegex;

use crate::error::TextError;

const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const DIGIT: &str = r"\p{N}";
const LLAMA_3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_3_5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT_4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK_3: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];
const DEEPSEEK_CODER: [&str; 5] = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"[一-龥ࠀ-一가-퟿]+", r"\p{N}"];
const FALCON: [&str; 3] = [r"[\p{P}\$\+<=>\^~\|`]+", GPT_2, r"[0-9][0-9][0-9]"];

/// What a name in `tokenizer.ggml.pre` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    expressions: &'static [&'static str],
    /// A part that is a token as it stands is not built by merging.
    pub whole_parts_first: bool,
    /// The vocabulary was made for text with a beginning-of-sequence token in front.
    pub adds_bos: bool,
    /// The vocabulary was made for text in Unicode's composed form.
    pub composes: bool,
}

impl Rules {
    /// Those of GPT-2, for names that are not known.
    pub(super) const GPT_2: Self = Self::plain(&[GPT_2]);

    const fn plain(expressions: &'static [&'static str]) -> Self {
        Self { expressions, whole_parts_first: false, adds_bos: false, composes: false }
    }

    /// The rules behind a name.
    pub(super) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "default" | "gpt-2" | "phi-2" | "mpt" | "olmo" | "jais" | "exaone4" | "trillion"
            | "granite-docling" | "gigachat" | "a.x-4.0" | "mellum" | "modern-bert" => Self::GPT_2,
            "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b" => {
                Self::plain(&[DIGIT, GPT_2])
            }
            "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0"
            | "lfm2" => Self { whole_parts_first: true, adds_bos: true, ..Self::plain(&[LLAMA_3]) },
            "dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe" => Self::plain(&[LLAMA_3]),
            "qwen2" => Self { composes: true, ..Self::plain(&[QWEN_2]) },
            "qwen35" => Self { composes: true, ..Self::plain(&[QWEN_3_5]) },
            "deepseek-r1-qwen" | "kormo" | "megrez" | "stablelm2" | "hunyuan" | "grok-2" => {
                Self::plain(&[QWEN_2])
            }
            "gpt-4o" | "llama4" | "kanana2" | "minimax-m2" => Self::plain(&[GPT_4O]),
            "tekken" => Self { whole_parts_first: true, adds_bos: true, ..Self::plain(&[TEKKEN]) },
            "deepseek-v3" | "hunyuan-dense" | "joyai-llm" => Self::plain(&DEEPSEEK_3),
            "deepseek-coder" => Self::plain(&DEEPSEEK_CODER),
            "falcon" => Self::plain(&FALCON),
            _ => return None,
        })
    }
}

/// Compiled rules.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    expressions: Vec<SysRegex>,
}

impl PreTokenizer {
    pub(super) fn new(rules: &Rules) -> Result<Self, TextError> {
        let compile = |expression: &&str| {
            SysRegex::new(expression)
                .map_err(|error| TextError::Unsupported { feature: format!("rule {expression:?}: {error}") })
        };
        Ok(Self { expressions: rules.expressions.iter().map(compile).collect::<Result<_, _>>()? })
    }

    /// The parts of `text`, in order, leaving nothing out.
    pub(super) fn split(&self, text: &str) -> Vec<Range<usize>> {
        let mut parts: Vec<Range<usize>> = std::iter::once(0..text.len()).collect();
        let mut finer = Vec::new();
        for expression in &self.expressions {
            for part in parts.drain(..) {
                let mut rest = part.start;
                let within = text.get(part.clone()).unwrap_or("");
                for (start, end) in expression.find_iter(within) {
                    let (start, end) = (part.start + start, part.start + end);
                    finer.extend([rest..start, start..end]);
                    rest = end;
                }
                finer.push(rest..part.end);
            }
            finer.retain(|part| !part.is_empty());
            std::mem::swap(&mut parts, &mut finer);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let rules = Rules::of(name).unwrap();
        let parts = PreTokenizer::new(&rules).unwrap().split(text);
        parts.into_iter().map(|part| &text[part]).collect()
    }

    #[test]
    fn every_rule_compiles_and_leaves_nothing_out() {
        let text = "Hello  WORLD's 12345 ümläut中文かな!!\r\n\n  x\u{301}\t. <br/> ";
        for name in [
            "gpt-2",
            "smollm",
            "llama-bpe",
            "dbrx",
            "qwen2",
            "qwen35",
            "megrez",
            "gpt-4o",
            "tekken",
            "deepseek-v3",
            "deepseek-coder",
            "falcon",
        ] {
            assert_eq!(split(name, text).concat(), text, "{name}");
            assert!(split(name, text).len() > 8, "{name}");
        }
        assert!(split("qwen2", "").is_empty());
    }

    #[test]
    fn families_differ_where_they_should() {
        assert_eq!(split("gpt-2", "a 123!  b"), ["a", " 123", "!", " ", " b"]);
        assert_eq!(split("smollm", "a 123!  b"), ["a", " ", "1", "2", "3", "!", " ", " b"]);
        assert_eq!(split("llama-bpe", "a 1234!\nb"), ["a", " ", "123", "4", "!\n", "b"]);
        assert_eq!(split("qwen2", "It'S 12"), ["It", "'S", " ", "1", "2"]);
        assert_eq!(split("gpt-4o", "fooBar's"), ["foo", "Bar's"]);
        assert_eq!(split("deepseek-v3", "中文abc1234"), ["中文", "abc", "123", "4"]);
    }

    #[test]
    fn unknown_names_are_told_apart() {
        assert_eq!(Rules::of("tomorrow-bpe"), None);
        assert_eq!(Rules::of("gpt-2"), Some(Rules::GPT_2));
    }
}
