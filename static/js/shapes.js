/** Well-known models and devices as plain numbers, to begin a sum with. Devices' peaks are their vendors' figures. */

export const MODELS = [
  { name: "SmolLM2 135M", layers: 30, heads: 9, kvHeads: 3, headDim: 64, parameters: 134_515_008 },
  { name: "Qwen2.5 0.5B", layers: 24, heads: 14, kvHeads: 2, headDim: 64, parameters: 494_032_768 },
  { name: "Llama 2 7B", layers: 32, heads: 32, kvHeads: 32, headDim: 128, parameters: 6_738_415_616 },
  { name: "Qwen2.5 7B", layers: 28, heads: 28, kvHeads: 4, headDim: 128, parameters: 7_615_000_000 },
  { name: "Llama 3.1 8B", layers: 32, heads: 32, kvHeads: 8, headDim: 128, parameters: 8_030_261_248 },
  { name: "Llama 3.1 70B", layers: 80, heads: 64, kvHeads: 8, headDim: 128, parameters: 70_553_706_496 },
];

/** 16-bit dense matrix arithmetic, and memory. */
export const DEVICES = [
  { name: "A100 80 GB", flops: 312e12, bytesPerS: 2.039e12 },
  { name: "H100 SXM", flops: 989e12, bytesPerS: 3.35e12 },
];
