package config

import (
	"cmp"
	"path/filepath"
	"time"
)

// Config has all settings of a run. The zero value is not valid: start from Default or Load.
//
// Tags: yaml is the name in the section. help is the meaning. in lists the allowed values: names
// (a|b) or an interval ([0,1) includes 0 and excludes 1; an omitted bound is open). only is the
// condition for an effect (optim.name=adam|adamw; a key alone means not empty). hash:"-" excludes
// the setting from Hash. resume:"fixed" forbids a change when a training resumes.
type Config struct {
	Run        Run        `yaml:"run"`
	Launch     Launch     `yaml:"launch"`
	Comm       Comm       `yaml:"comm"`
	Model      Model      `yaml:"model"`
	Data       Data       `yaml:"data"`
	DDP        DDP        `yaml:"ddp"`
	Shard      Shard      `yaml:"shard"`
	Optim      Optim      `yaml:"optim"`
	Checkpoint Checkpoint `yaml:"checkpoint"`
	CPU        CPU        `yaml:"cpu"`
	GPU        GPU        `yaml:"gpu"`
	Log        Log        `yaml:"log"`
}

// Run sets the length of a run and the place of its results.
type Run struct {
	Name      string `yaml:"name" hash:"-" help:"name of the run, used as its title in logs and its folder under runs/"`
	OutputDir string `yaml:"output_dir" hash:"-" help:"folder for summary, metrics, effective config and traces, used by one run at a time; results of an earlier run get a number, as summary-1.json; empty means runs/<run.name>"`
	Resume    string `yaml:"resume" hash:"-" help:"checkpoint to resume from: auto is the newest complete one in checkpoint.dir, if any; none starts a new training; else the path of a checkpoint, or of a folder, meaning its newest complete one"`
	Seed      int64  `yaml:"seed" resume:"fixed" help:"seed of the initial weights and of the sample order"`
	MaxSteps  int    `yaml:"max_steps" in:"[0,)" help:"maximum number of optimizer steps; the run ends earlier if its epochs do; 0 means no limit"`
	Epochs    int    `yaml:"epochs" in:"[0,)" help:"maximum number of passes over the training set; the run ends earlier if its steps do; 0 means no limit"`
	Eval      bool   `yaml:"eval" help:"measure loss and accuracy on the test set at the end, and as run.eval_every says"`
	EvalEvery int    `yaml:"eval_every" in:"[0,)" help:"with run.eval, steps between evaluations on the test set during the training; 0 means after each epoch; no effect with ddp.local_steps above 1, where only the end has the weights of all ranks"`
	Device    string `yaml:"device" in:"auto|cpu|cuda" help:"device of a rank's tensors: cpu is the host, cuda is one GPU per rank; auto is cuda if the settings allow it and each rank has a GPU, else cpu"`
	Machine   string `yaml:"machine" in:"compiled|tape" help:"machine that runs the graphs: compiled is package machine, tape is Gorgonia's own tape machine, on the host only"`
	Precision string `yaml:"precision" in:"fp32|tf32|bf16|f16" only:"run.device=auto|cuda" help:"precision of matrix products on a GPU, with sums in fp32: tf32, f16 and bf16 are faster and have 10, 10 and 7 bits of mantissa; f16 has a smaller range and needs optim.loss_scale; weights stay in fp32"`
	Recompute string `yaml:"recompute" in:"none|blocks|auto" help:"results of the forward pass (activations) that the backward pass computes again instead of keeping them, with the same bits: none; blocks is all between the points where few bytes pass, such as the layers of a transformer, for about a third more computation; auto is as few as run.memory_mb needs"`
	MemoryMB  int    `yaml:"memory_mb" in:"[0,16777216]" only:"run.recompute=auto" help:"memory of a rank in MiB for activations, inputs and outputs, in addition to weights, gradients and optimizer state; 0 means the free memory of a GPU, and no limit on the host"`
}

// Launch sets how a program starts its ranks itself, without a launcher.
type Launch struct {
	NprocPerNode int           `yaml:"nproc_per_node" in:"[0,4096]" help:"number of ranks that the program starts on this host, unless a launcher started it; 0 means that it starts none and is the only rank"`
	Master       string        `yaml:"master" hash:"-" help:"host:port of the rendezvous store; empty means the launcher's, or a free port of this host"`
	LogDir       string        `yaml:"log_dir" hash:"-" help:"folder for the output of each started rank; empty means logs in run.output_dir"`
	Bind         string        `yaml:"bind" hash:"-" in:"core|none" help:"binding of the started ranks to cores: core gives each rank an equal number of its own cores, none lets all ranks use all cores"`
	Grace        time.Duration `yaml:"grace" hash:"-" in:"(0s,)" help:"time for ranks to end by themselves after one failed, before they are killed; at least 30s after an interrupt, so that they can save"`
}

// Comm sets the communication between ranks.
type Comm struct {
	Backend       string        `yaml:"backend" in:"auto|shm|mpi|ucx|sim|cuda|nccl|nvshmem" help:"communication between ranks: shm is shared memory between processes of a host, mpi and ucx are that and MPI or UCX between hosts, sim is goroutines in one process; between GPUs nccl and nvshmem are these libraries, and cuda is the fastest of them and symgrad's own kernels, per operation; auto is the best that works"`
	Engine        string        `yaml:"engine" only:"comm.backend=cuda|nccl|nvshmem" help:"engine between GPUs for all operations, such as nccl, nccl-window, nvshmem, ll128 or twoshot, and over several hosts hier; empty means the fastest per operation, by the table of comm.tune"`
	Tune          string        `yaml:"tune" hash:"-" only:"comm.backend=cuda|nccl|nvshmem" help:"file of symgrad tune with the fastest engine per operation; empty means the built-in table"`
	MaxCTAs       int           `yaml:"max_ctas" in:"[0,128]" only:"comm.backend=auto|cuda|nccl" help:"maximum thread blocks of a collective on a GPU, which compete with computation for multiprocessors; it changes neither the engine chosen by comm.tune nor nvshmem's kernels; 0 means the number that is fastest alone"`
	Order         string        `yaml:"order" in:"rank|fast" only:"comm.backend=auto|mpi|ucx" help:"order in which large sums over several hosts of equally many ranks are taken: rank is that of one host, with its bits; fast adds inside hosts first and sends less, so that floats are rounded otherwise"`
	TimeoutInit   time.Duration `yaml:"timeout_init" hash:"-" in:"(0s,)" help:"maximum wait for all ranks at the rendezvous"`
	TimeoutStep   time.Duration `yaml:"timeout_step" hash:"-" in:"(0s,)" help:"maximum wait for other ranks in a collective, after which the group is broken"`
	Check         bool          `yaml:"check" help:"check before each collective that ranks agree on op, count, dtype, root and order"`
	HeapMB        int           `yaml:"heap_mb" in:"[0,1048576]" help:"size of the symmetric heap of each rank in MiB; 0 means the size that the model needs"`
	WireDType     string        `yaml:"wire_dtype" in:"f32|bf16|f16" help:"dtype of gradients on the wire: bf16 and f16 halve the bytes and round, f32 is exact"`
	ErrorFeedback bool          `yaml:"error_feedback" only:"comm.wire_dtype=bf16|f16" help:"add the rounding error of each gradient to the next one"`
	TraceEntries  int           `yaml:"trace_entries" hash:"-" in:"[1,16777216]" help:"number of last collectives in the flight recorder of each group"`
}

// Model defines the network to train.
type Model struct {
	Name     string `yaml:"name" resume:"fixed" in:"mlp|cnn|gpt2|llama|resnet18|resnet34|resnet50|resnet101" help:"kind of network: mlp is fully connected layers, cnn is convolutions with pooling before them, gpt2 and llama are decoder-only language models, resnet18 to resnet101 are residual networks for images"`
	Hidden   []int  `yaml:"hidden" resume:"fixed" in:"[1,)" only:"model.name=mlp|cnn" help:"widths of the hidden fully connected layers, between input (or convolutions) and classes; [] means none"`
	Channels []int  `yaml:"channels" resume:"fixed" in:"[1,)" only:"model.name=cnn" help:"output channels of each convolution; each is followed by 2x2 max pooling"`
	Kernel   int    `yaml:"kernel" resume:"fixed" in:"[1,31]" only:"model.name=cnn" help:"rows and columns of a convolution, an odd number; padding keeps the size of images"`
	Layers   int    `yaml:"layers" resume:"fixed" in:"[1,1024]" only:"model.name=gpt2|llama" help:"number of blocks of attention and perceptron"`
	Heads    int    `yaml:"heads" resume:"fixed" in:"[1,1024]" only:"model.name=gpt2|llama" help:"attention heads of a layer, a divisor of model.width"`
	Width    int    `yaml:"width" resume:"fixed" in:"[1,65536]" only:"model.name=gpt2|llama|resnet18|resnet34|resnet50|resnet101" help:"number of features of a token; of a residual network the channels of its first stage, 64 in the paper"`
	Context  int    `yaml:"context" resume:"fixed" in:"[2,65536]" only:"model.name=gpt2|llama" help:"tokens of a sample; each attends to itself and those before it"`
	Tied     bool   `yaml:"tied" resume:"fixed" only:"model.name=gpt2|llama" help:"share the weights of token embedding and output layer"`

	KVHeads    int     `yaml:"kv_heads" resume:"fixed" in:"[0,1024]" only:"model.name=llama" help:"heads of keys and values of a layer, a divisor of model.heads; 0 means model.heads"`
	Inner      int     `yaml:"inner" resume:"fixed" in:"[0,1048576]" only:"model.name=gpt2|llama" help:"width inside the perceptron of a layer; 0 means 4 times model.width, for llama 8/3 times, rounded up to a multiple of 32"`
	InitStd    float64 `yaml:"init_std" resume:"fixed" in:"[0,1]" only:"model.name=gpt2|llama" help:"standard deviation of initial weights; 0 means 0.02, that of GPT-2, which is low for small models: 1/sqrt(model.width) keeps the size of activations"`
	Vocabulary int     `yaml:"vocabulary" resume:"fixed" in:"[0,1048576]" only:"model.name=gpt2|llama" help:"rows of the token embedding; 0 means the vocabulary of data.encoding, rounded up to a multiple of 64, which is faster on GPUs"`
	Pretrained string  `yaml:"pretrained" resume:"fixed" only:"model.name=gpt2|llama|resnet18|resnet34|resnet50|resnet101" help:"folder of Hugging Face with the initial weights and, in its config.json, the sizes of the model instead of the settings above; for a residual network a safetensors file in the names of torchvision; empty means random weights"`

	SyncBN         bool    `yaml:"sync_bn" resume:"fixed" only:"model.name=resnet18|resnet34|resnet50|resnet101" help:"normalize batches over the samples of all ranks; false means over each rank's own, as PyTorch does by default"`
	LabelSmoothing float64 `yaml:"label_smoothing" resume:"fixed" in:"[0,1)" only:"model.name=resnet18|resnet34|resnet50|resnet101" help:"share of the loss that all classes get equally"`
}

// Data defines the training and test samples and their order.
type Data struct {
	Path        string `yaml:"path" help:"folder with the four idx files of MNIST, or of a data set in its format; for gpt2 and llama a file of tokens or a folder with such files, *.bin, for examples/lm the text file; for a residual network the folder with the binary files of CIFAR-10 or CIFAR-100, or with train/CLASS/IMAGE.jpg and val/CLASS/IMAGE.jpg"`
	GlobalBatch int    `yaml:"global_batch" resume:"fixed" in:"[1,)" help:"samples of one optimizer step, over all ranks"`
	Shuffle     bool   `yaml:"shuffle" resume:"fixed" help:"shuffle samples in each epoch, equally for any number of ranks"`
	DropLast    bool   `yaml:"drop_last" resume:"fixed" help:"skip the last batch of an epoch if it is smaller"`
	AccumSteps  int    `yaml:"accum_steps" in:"[1,)" help:"number of parts in which each rank computes its share of a batch; gradients are exchanged after the last (shard.stage 2 and 3: after each)"`
	Limit       int    `yaml:"limit" resume:"fixed" in:"[0,)" help:"number of training samples to use, from the first; 0 means all"`
	Workers     int    `yaml:"workers" hash:"-" in:"[0,4096]" help:"goroutines of each rank that read samples ahead, for programs with a data set such as files of tokens or images; 0 means cpu.threads"`
	ImageSize   int    `yaml:"image_size" resume:"fixed" in:"[0,4096]" only:"model.name=resnet18|resnet34|resnet50|resnet101" help:"rows and columns of a sample from a folder of images; 0 means 224"`
	Augment     bool   `yaml:"augment" resume:"fixed" only:"model.name=resnet18|resnet34|resnet50|resnet101" help:"crop and flip images at random, by seed, epoch and sample"`
	Ahead       int    `yaml:"ahead" hash:"-" in:"[0,1024]" help:"batches that each rank reads ahead; they take memory; 0 means 2"`
	Encoding    string `yaml:"encoding" resume:"fixed" in:"r50k_base|p50k_base|cl100k_base|o200k_base" only:"model.name=gpt2|llama" help:"encoding of the tokens; r50k_base is that of GPT-2"`
	ValPath     string `yaml:"val_path" only:"model.name=gpt2|llama" help:"file or folder with the tokens of the test set; empty means no test set"`
	ValLimit    int    `yaml:"val_limit" in:"[0,)" only:"model.name=gpt2|llama|resnet18|resnet34|resnet50|resnet101" help:"number of test samples to use, from the first; 0 means all"`
}

// DDP sets the exchange of gradients.
type DDP struct {
	BucketMB      float64 `yaml:"bucket_mb" in:"[0.0009765625,4096]" help:"size of a bucket, the gradients of one collective, in MiB; fractions are allowed, down to 1 KiB"`
	FirstBucketMB float64 `yaml:"first_bucket_mb" in:"[0.0009765625,4096]" help:"size of the first bucket in MiB, small so that communication starts early; at most ddp.bucket_mb"`
	Overlap       bool    `yaml:"overlap" help:"exchange buckets during the backward pass; false means after it"`
	Average       string  `yaml:"average" in:"mean|sum|predivide" help:"combination of the ranks' gradients: mean gives each sample exactly the same weight; sum is data.global_batch times the mean; predivide is the mean, divided before the sum, so that narrow dtypes do not overflow"`
	Hook          string  `yaml:"hook" in:"none|powersgd" help:"gradient compression: none, or powersgd, which sends two thin matrices for each matrix (Vogels et al., 2019)"`
	PowerSGDRank  int     `yaml:"powersgd_rank" in:"[1,4096]" only:"ddp.hook=powersgd" help:"columns of powersgd's matrices; more columns need more bytes and approximate the gradient better"`
	LocalSteps    int     `yaml:"local_steps" in:"[1,)" help:"steps that each rank makes by itself between averages of the weights; 1 means that gradients are averaged at each step"`
	VirtualRanks  int     `yaml:"virtual_ranks" in:"[0,4096]" help:"number of parts of a batch whose gradients are summed in a fixed order, so that any number of ranks that divides it computes the same bits; 0 means one part per rank"`
}

// Shard sets which tensors are sharded over the ranks instead of replicated.
type Shard struct {
	Stage         int  `yaml:"stage" in:"[0,3]" help:"tensors sharded over the ranks: 0 is none, 1 the state of the optimizer, 2 gradients as well, 3 weights as well (Rajbhandari et al., ZeRO, 2020)"`
	OverlapGather bool `yaml:"overlap_gather" help:"gather updated weights during the forward pass of the next step, for stages 1 and 2 on GPUs; false means at the end of the step; no effect on the host"`
}

// Optim sets the rule that updates the weights.
type Optim struct {
	Name          string   `yaml:"name" resume:"fixed" in:"sgd|momentum|nesterov|adam|adamw|lamb|lion" help:"update rule"`
	LR            float64  `yaml:"lr" in:"(0,)" help:"learning rate, before the schedule"`
	Momentum      float64  `yaml:"momentum" in:"(0,1)" only:"optim.name=momentum|nesterov" help:"share of the previous update in the next one"`
	Nesterov      bool     `yaml:"nesterov" only:"optim.name=momentum" help:"look ahead by one momentum step, as optim.name=nesterov does"`
	Beta1         float64  `yaml:"beta1" in:"(0,1)" only:"optim.name=adam|adamw|lamb|lion" help:"decay of the running mean of gradients"`
	Beta2         float64  `yaml:"beta2" in:"(0,1)" only:"optim.name=adam|adamw|lamb|lion" help:"decay of the running mean of squared gradients; for lion the decay of its stored mean, usually 0.99"`
	Eps           float64  `yaml:"eps" in:"(0,)" only:"optim.name=adam|adamw|lamb" help:"number added to the denominator of the update"`
	WeightDecay   float64  `yaml:"weight_decay" in:"[0,)" help:"weight decay: adamw, lamb and lion subtract this share of the weight, times the learning rate, at each step; others add the weight times this to the gradient; unset means 0.01 with adamw, as in PyTorch, and 0 with the others; 0 means none"`
	NoDecay       string   `yaml:"no_decay" help:"parameters without weight decay: comma-separated patterns of names with * and ?, such as *.bias; the word vectors means all of one dimension (biases and scales of norms); empty means none"`
	ClipNorm      float64  `yaml:"clip_norm" in:"[0,)" help:"maximum global norm of the gradient, to which larger ones are scaled down; 0 means no clipping"`
	ClipValue     float64  `yaml:"clip_value" in:"[0,)" help:"maximum magnitude of a gradient's element, at which larger ones are cut off; 0 means no clipping"`
	SkipNonFinite bool     `yaml:"skip_nonfinite" help:"skip steps, on all ranks, whose gradient has an infinity or a NaN; false means that they end the run"`
	EMADecay      float64  `yaml:"ema_decay" resume:"fixed" in:"[0,1)" help:"decay of a moving average of the weights, which the test uses; 0 means none"`
	LossScale     string   `yaml:"loss_scale" help:"factor of the loss that keeps gradients in the range of narrow dtypes; the optimizer divides by it: a number, dynamic for an adaptive factor, 0 for none"`
	Schedule      Schedule `yaml:"schedule"`
}

// Schedule sets how the learning rate changes with the step.
type Schedule struct {
	Name        string  `yaml:"name" in:"constant|cosine|step" help:"learning rate after the warm-up: constant, half a cosine down to min_lr, or steps down by gamma"`
	WarmupSteps int     `yaml:"warmup_steps" in:"[0,)" help:"number of first steps in which the rate rises linearly; 0 means none"`
	TotalSteps  int     `yaml:"total_steps" in:"[0,)" only:"optim.schedule.name=cosine" help:"step, including the warm-up, at which the cosine ends; 0 means the end of the run"`
	MinLR       float64 `yaml:"min_lr" in:"[0,)" only:"optim.schedule.name=cosine" help:"learning rate at the end of the cosine"`
	StepSize    int     `yaml:"step_size" in:"[1,)" only:"optim.schedule.name=step" help:"steps between drops of the rate"`
	Gamma       float64 `yaml:"gamma" in:"(0,1]" only:"optim.schedule.name=step" help:"factor of the rate at each drop"`
}

// Checkpoint sets the checkpoints from which a later run can resume.
type Checkpoint struct {
	Dir     string `yaml:"dir" hash:"-" help:"folder for checkpoints, which are written every checkpoint.every steps, at the end, and when the run is interrupted; empty means no checkpoints"`
	Every   int    `yaml:"every" hash:"-" in:"[0,)" only:"checkpoint.dir" help:"steps between checkpoints; 0 means only at the end and when the run is interrupted"`
	Keep    int    `yaml:"keep" hash:"-" in:"[0,)" only:"checkpoint.dir" help:"number of newest checkpoints to keep; older ones are removed; 0 means all"`
	Async   bool   `yaml:"async" hash:"-" only:"checkpoint.dir" help:"write a copy during the training; false means that the training waits"`
	Sharded bool   `yaml:"sharded" hash:"-" only:"checkpoint.dir" help:"let each rank write a file with its part; false means that rank 0 writes one file with all parts"`
}

// CPU sets how a rank computes on the host.
type CPU struct {
	BLAS    string `yaml:"blas" help:"matrix library: gonum is built in, a path or soname (libopenblas.so.0) is loaded, auto is a fast library if the system has one, else gonum"`
	Threads int    `yaml:"threads" in:"[0,4096]" help:"number of threads of a rank; 0 means the cores of the host divided by its ranks"`
}

// GPU names the libraries for GPUs. Each is a path, or a bare soname for the loader. If it is
// empty, the library is searched.
type GPU struct {
	Driver  string `yaml:"driver" hash:"-" help:"CUDA driver library, a path or soname; empty means a search for libcuda.so.1"`
	NVRTC   string `yaml:"nvrtc" hash:"-" help:"NVRTC library, which compiles kernels, a path or soname; empty means a search for the newest CUDA version that the driver supports"`
	NCCL    string `yaml:"nccl" hash:"-" help:"NCCL library, a path or soname; empty means the one in NCCL_HOME, else a search for libnccl.so.2"`
	NVSHMEM string `yaml:"nvshmem" hash:"-" help:"NVSHMEM library, a path or soname; empty means the one in NVSHMEM_HOME, else a search for libnvshmem_host.so.3"`
}

// Log sets the reports and records of a run.
type Log struct {
	Every       int     `yaml:"every" hash:"-" in:"[1,)" help:"steps between lines of progress, between records in metrics.jsonl, and between exchanges of losses"`
	Losses      bool    `yaml:"losses" hash:"-" help:"write the loss of every step to summary.json, and its metrics to metrics.jsonl"`
	Trace       string  `yaml:"trace" hash:"-" help:"file in run.output_dir for a timeline in Chrome's trace format; empty means none"`
	TraceSteps  []int   `yaml:"trace_steps" hash:"-" in:"[0,)" only:"log.trace" help:"first and last step of the timeline, counted from 0"`
	CSV         bool    `yaml:"csv" hash:"-" help:"also write the metrics of metrics.jsonl to metrics.csv in run.output_dir"`
	TensorBoard bool    `yaml:"tensorboard" hash:"-" help:"also write the metrics as event files for TensorBoard, in the folder tensorboard of run.output_dir"`
	PeakTFLOPS  float64 `yaml:"peak_tflops" hash:"-" in:"[0,)" help:"peak rate of matrix products of a rank's device in TFLOP/s, for model FLOP utilization in the metrics; 0 means that of the data sheet, which is known for some GPUs"`
	Progress    string  `yaml:"progress" hash:"-" in:"auto|bar|plain|none" help:"progress display of rank 0: auto is a bar on a terminal and plain lines elsewhere"`
}

// Default returns the default settings. They are valid, and train an MLP on MNIST.
func Default() Config {
	return Config{
		Run:    Run{Name: "default", Resume: "auto", Seed: 1, Epochs: 1, Eval: true, Device: "auto", Machine: "compiled", Precision: "fp32", Recompute: "none"},
		Launch: Launch{Bind: "none", Grace: 2 * time.Second},
		// 100 s per collective: less than NCCL's watchdog in PyTorch (10 min), and bearable for a
		// person who waits.
		Comm: Comm{Backend: "auto", Order: "rank", TimeoutInit: time.Minute, TimeoutStep: 100 * time.Second, Check: true, WireDType: "f32", TraceEntries: 4096},
		Model: Model{
			Name: "mlp", Hidden: []int{512, 512}, Channels: []int{6, 16}, Kernel: 5,
			Layers: 2, Heads: 4, Width: 64, Context: 64, Tied: true,
		},
		Data: Data{Path: "data/mnist", GlobalBatch: 128, Shuffle: true, AccumSteps: 1, Augment: true, Encoding: "r50k_base"},
		// bucket_cap_mb and the first bucket of PyTorch's DistributedDataParallel.
		DDP: DDP{BucketMB: 25, FirstBucketMB: 1, Overlap: true, Average: "mean", Hook: "none", PowerSGDRank: 4, LocalSteps: 1},
		// Kingma and Ba, Adam, 2015, section 2; momentum and gamma as in torch.optim's examples.
		Optim: Optim{
			Name: "adam", LR: 1e-3, Momentum: 0.9, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, LossScale: "0",
			Schedule: Schedule{Name: "constant", StepSize: 1000, Gamma: 0.1},
		},
		Checkpoint: Checkpoint{Every: 500, Keep: 3, Async: true, Sharded: true},
		CPU:        CPU{BLAS: "auto"},
		Log:        Log{Every: 50, TraceSteps: []int{10, 19}, Progress: "auto"},
	}
}

// OutputDir returns the folder of the run's results: run.output_dir, or runs/<run.name>.
func (c *Config) OutputDir() string {
	if c.Run.OutputDir != "" {
		return c.Run.OutputDir
	}
	return filepath.Join("runs", c.Run.Name)
}

// LogDir returns the folder for the output of started ranks: launch.log_dir, or logs in the run's
// output folder.
func (c *Config) LogDir() string {
	if c.Launch.LogDir != "" {
		return c.Launch.LogDir
	}
	return filepath.Join(c.OutputDir(), "logs")
}

// BucketBytes returns ddp.bucket_mb in bytes, at least 1.
func (d DDP) BucketBytes() int64 { return mebibytes(d.BucketMB) }

// FirstBucketBytes returns ddp.first_bucket_mb in bytes, at least 1 and at most BucketBytes.
func (d DDP) FirstBucketBytes() int64 { return min(mebibytes(d.FirstBucketMB), d.BucketBytes()) }

// HeapBytes returns comm.heap_mb in bytes; 0 means automatic.
func (c Comm) HeapBytes() int64 { return int64(c.HeapMB) << 20 }

// CosineSteps returns the length of the cosine, from the end of the warm-up to total_steps, or to
// the end of a run of runSteps. It is at least 1, because a run may end within its warm-up.
func (s Schedule) CosineSteps(runSteps int) int {
	return max(1, cmp.Or(s.TotalSteps, runSteps)-s.WarmupSteps)
}

func mebibytes(mb float64) int64 { return max(1, int64(mb*(1<<20))) }
