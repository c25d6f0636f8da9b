//! The numbers that stand for element types in GGUF files.

use updraft_kernels::tensor::ElementType;

/// The element type of a number, if it can be computed with.
pub(super) fn by_code(code: u32) -> Option<ElementType> {
    Some(match code {
        0 => ElementType::F32,
        1 => ElementType::F16,
        2 => ElementType::Q4_0,
        3 => ElementType::Q4_1,
        6 => ElementType::Q5_0,
        7 => ElementType::Q5_1,
        8 => ElementType::Q8_0,
        12 => ElementType::Q4K,
        13 => ElementType::Q5K,
        14 => ElementType::Q6K,
        30 => ElementType::BF16,
        _ => return None,
    })
}

/// The name of any number, for messages.
pub(super) fn name_of(code: u32) -> String {
    let foreign = match code {
        9 => "Q8_1",
        10 => "Q2_K",
        11 => "Q3_K",
        15 => "Q8_K",
        16 => "IQ2_XXS",
        17 => "IQ2_XS",
        18 => "IQ3_XXS",
        19 => "IQ1_S",
        20 => "IQ4_NL",
        21 => "IQ3_S",
        22 => "IQ2_S",
        23 => "IQ4_XS",
        24 => "I8",
        25 => "I16",
        26 => "I32",
        27 => "I64",
        28 => "F64",
        29 => "IQ1_M",
        34 => "TQ1_0",
        35 => "TQ2_0",
        39 => "MXFP4",
        _ => return by_code(code).map_or_else(|| format!("type {code}"), |known| known.name().to_owned()),
    };
    foreign.to_owned()
}
