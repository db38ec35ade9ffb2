// Package transformer has decoder-only transformers as Gorgonia graphs: GPT-2 and Llama, with the
// parameters, names, layouts and initial weights of Hugging Face's transformers library. Weights go
// in and out as folders of that library.
//
//	w, err := transformer.Load("gpt2") // config.json and model.safetensors
//	err = w.Save("copy")               // a folder that from_pretrained loads
//
// Config corresponds to a config.json. Fields that change the results in a way that the package
// does not compute are refused by name.
//
// Read the files in this order:
//
//	config.go config_read.go config_write.go   Config, and its JSON
//	params.go                                  names, shapes and initial values of parameters
//	weights.go load.go folder.go save.go       weights in files
//	model.go network.go                        the graph: New, its inputs and its blocks
//	sample.go                                  text from a model: Sampler and Generate
//
// Sources: Radford et al., Language Models are Unsupervised Multitask Learners, 2019; Touvron et
// al., LLaMA, 2023, and Llama 2, 2023; modeling_gpt2.py and modeling_llama.py of Hugging Face's
// transformers.
package transformer
