package config

import (
	"cmp"
	"path/filepath"
	"time"
)

// Config is all settings of a run. The zero value is not valid: start from Default or Load.
//
// Tags: yaml is the name in its section. help is the meaning. in is the allowed values: names (a|b)
// or an interval ([0,1) has 0 and not 1; a side may be open). only names the setting that it needs
// for an effect (optim.name=adam|adamw; a key alone means not empty). hash:"-" keeps it out of
// Hash. resume:"fixed" forbids a change when a training resumes.
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

// Run says how long a run is and where it leaves its results.
type Run struct {
	Name      string `yaml:"name" hash:"-" help:"name of the run: its title in logs, and its folder under runs/"`
	OutputDir string `yaml:"output_dir" hash:"-" help:"folder for the summary, the effective config and traces, which one run at a time may use; the results of an earlier run stay there with a number, as summary-1.json; empty means runs/<run.name>"`
	Resume    string `yaml:"resume" hash:"-" help:"where the training goes on from: auto is the newest whole checkpoint in checkpoint.dir, or the beginning if there is none; none is the beginning; else the path of a checkpoint, or of a folder whose newest whole one is meant"`
	Seed      int64  `yaml:"seed" resume:"fixed" help:"seed of the initial weights and of the sample order"`
	MaxSteps  int    `yaml:"max_steps" in:"[0,)" help:"optimizer steps after which the run ends, if its epochs have not ended before; 0 means no such limit"`
	Epochs    int    `yaml:"epochs" in:"[0,)" help:"passes over the training set after which the run ends, if its steps have not ended before; 0 means no such limit"`
	Eval      bool   `yaml:"eval" help:"measure the accuracy on the test set at the end"`
	Device    string `yaml:"device" in:"auto|cpu|cuda" help:"where a rank has its tensors: cpu is the host, cuda is a GPU for each rank of a host; auto is cuda where the program can and GPUs are there, else cpu"`
	Machine   string `yaml:"machine" in:"compiled|tape" help:"machine that runs the graphs: compiled is package machine, tape is Gorgonia's tape machine, on the host only"`
	Precision string `yaml:"precision" in:"fp32|tf32|bf16" only:"run.device=auto|cuda" help:"arithmetic of matrix products on a GPU, with sums in fp32: tf32 and bf16 are faster and have 10 and 7 bits of mantissa; weights are fp32"`
}

// Launch says how a program starts its ranks when no launcher did.
type Launch struct {
	NprocPerNode int           `yaml:"nproc_per_node" in:"[0,4096]" help:"ranks that the program starts on this host when no launcher started it; 0 means that it starts none and is the only rank itself"`
	Master       string        `yaml:"master" hash:"-" help:"host:port of the store where ranks meet; empty means that the launcher's is used, or a free port of this host"`
	LogDir       string        `yaml:"log_dir" hash:"-" help:"folder for the output of each started rank; empty means logs in the run's output folder"`
	Bind         string        `yaml:"bind" hash:"-" in:"core|none" help:"cores of the ranks that the program starts: core gives each rank as many cores of its own as the others, none leaves all ranks on all cores"`
	Grace        time.Duration `yaml:"grace" hash:"-" in:"(0s,)" help:"time that ranks have to end by themselves, after one failed, before they are killed; where the run was interrupted it is 30s if this is less, so that they can save"`
}

// Comm is the communication between ranks.
type Comm struct {
	Backend       string        `yaml:"backend" in:"auto|shm|sim|cuda|nccl|nvshmem" help:"how ranks talk: shm is shared memory between the processes of a host, sim is goroutines in one process; between GPUs nccl and nvshmem are these libraries, and cuda is the fastest of them and of kernels of our own for each operation; auto takes the best that works"`
	Engine        string        `yaml:"engine" only:"comm.backend=cuda|nccl|nvshmem" help:"the one way between GPUs that does all operations, such as nccl, nccl-window, nvshmem, ll128 or twoshot; empty means the fastest for each, by the table of comm.tune"`
	Tune          string        `yaml:"tune" hash:"-" only:"comm.backend=cuda|nccl|nvshmem" help:"file that symgrad tune wrote: which way is the fastest for which operation; empty means the table that comes with the program"`
	MaxCTAs       int           `yaml:"max_ctas" in:"[0,128]" only:"comm.backend=auto|cuda|nccl" help:"most thread blocks that one collective launches on a GPU, each of which takes a multiprocessor or a part of one from the computation; 0 means as many as are the fastest alone. The table of comm.tune still chooses the engine, and nvshmem's kernels do not change"`
	TimeoutInit   time.Duration `yaml:"timeout_init" hash:"-" in:"(0s,)" help:"longest wait for all ranks to come together"`
	TimeoutStep   time.Duration `yaml:"timeout_step" hash:"-" in:"(0s,)" help:"longest wait for the other ranks in one collective, after which the group is broken"`
	Check         bool          `yaml:"check" help:"compare op, count, dtype, root and order of every collective across ranks before it runs"`
	HeapMB        int           `yaml:"heap_mb" in:"[0,1048576]" help:"size of the symmetric heap of each rank in MiB; 0 means as large as the model needs"`
	WireDType     string        `yaml:"wire_dtype" in:"f32|bf16|f16" help:"dtype of gradients on the wire; bf16 and f16 halve the bytes and round"`
	ErrorFeedback bool          `yaml:"error_feedback" only:"comm.wire_dtype=bf16|f16" help:"keep the rounding error of a gradient, and add it to the next one"`
	TraceEntries  int           `yaml:"trace_entries" hash:"-" in:"[1,16777216]" help:"last collectives that the flight recorder of each group remembers"`
}

// Model is the network to train.
type Model struct {
	Name     string `yaml:"name" resume:"fixed" in:"mlp|cnn|transformer" help:"mlp is fully connected layers; cnn is convolutions with pooling in front of them; transformer is a decoder-only language model"`
	Hidden   []int  `yaml:"hidden" resume:"fixed" in:"[1,)" help:"widths of the hidden fully connected layers, between input (or convolutions) and classes, or in the perceptron of each layer of a transformer; [] means none"`
	Channels []int  `yaml:"channels" resume:"fixed" in:"[1,)" only:"model.name=cnn" help:"output channels of each convolution; each is followed by 2x2 max pooling"`
	Kernel   int    `yaml:"kernel" resume:"fixed" in:"[1,31]" only:"model.name=cnn" help:"rows and columns of a convolution, an odd number; images keep their size by padding"`
	Layers   int    `yaml:"layers" resume:"fixed" in:"[1,1024]" only:"model.name=transformer" help:"blocks of attention and perceptron"`
	Heads    int    `yaml:"heads" resume:"fixed" in:"[1,1024]" only:"model.name=transformer" help:"attention heads of a layer; they divide model.width"`
	Width    int    `yaml:"width" resume:"fixed" in:"[1,65536]" only:"model.name=transformer" help:"features of a token"`
	Context  int    `yaml:"context" resume:"fixed" in:"[2,65536]" only:"model.name=transformer" help:"tokens of a sample, each of which sees those before it"`
	Tied     bool   `yaml:"tied" resume:"fixed" only:"model.name=transformer" help:"use the embedding of the tokens as the output layer, too"`
}

// Data is the training and test samples and how steps take them.
type Data struct {
	Path        string `yaml:"path" help:"folder with the four idx files of MNIST or of a data set in its format; for a language model the file with the text"`
	GlobalBatch int    `yaml:"global_batch" resume:"fixed" in:"[1,)" help:"samples of one optimizer step, over all ranks"`
	Shuffle     bool   `yaml:"shuffle" resume:"fixed" help:"draw a new order for each epoch, the same for any number of ranks"`
	DropLast    bool   `yaml:"drop_last" resume:"fixed" help:"leave out a smaller last batch of an epoch"`
	AccumSteps  int    `yaml:"accum_steps" in:"[1,)" help:"parts that each rank computes its share of a batch in; gradients are exchanged after the last (shard.stage 2 and 3: after each)"`
	Limit       int    `yaml:"limit" resume:"fixed" in:"[0,)" help:"use only the first so many training samples; 0 means all"`
}

// DDP is the exchange of gradients.
type DDP struct {
	BucketMB      float64 `yaml:"bucket_mb" in:"[0.0009765625,4096]" help:"MiB of gradients that travel in one collective; fractions are allowed, down to 1 KiB"`
	FirstBucketMB float64 `yaml:"first_bucket_mb" in:"[0.0009765625,4096]" help:"MiB of the first bucket, small so that communication starts early; never more than ddp.bucket_mb"`
	Overlap       bool    `yaml:"overlap" help:"exchange a bucket while the backward pass goes on; false means after it"`
	Average       string  `yaml:"average" in:"mean|sum|predivide" help:"average of the ranks' gradients: mean weighs each sample equally; sum is that of all samples' gradients, data.global_batch times the mean; predivide is mean, divided before the sum, so that narrow numbers do not overflow"`
	Hook          string  `yaml:"hook" in:"none|powersgd" help:"gradient compression: none, or powersgd, which sends two thin matrices for each matrix (Vogels et al., 2019)"`
	PowerSGDRank  int     `yaml:"powersgd_rank" in:"[1,4096]" only:"ddp.hook=powersgd" help:"columns of these matrices: more are more bytes and closer to the gradient"`
	LocalSteps    int     `yaml:"local_steps" in:"[1,)" help:"steps that each rank makes by itself before the weights are averaged; 1 means that gradients are averaged at each step"`
	VirtualRanks  int     `yaml:"virtual_ranks" in:"[0,4096]" help:"cut each batch into so many parts and add up their gradients in one order, so that any number of ranks that divides it computes the same bits; 0 means one for each rank"`
}

// Shard has the settings of sharded state.
type Shard struct {
	Stage         int  `yaml:"stage" in:"[0,3]" help:"0 shares nothing out; 1 the state of the optimizer; 2 the gradients, too; 3 the weights, too (Rajbhandari et al., ZeRO, 2020)"`
	OverlapGather bool `yaml:"overlap_gather" help:"with stage 1 and 2 on GPUs, gather updated weights during the forward pass of the next step instead of at the end of their own; no effect on the host"`
}

// Optim is the rule that updates the weights.
type Optim struct {
	Name          string   `yaml:"name" resume:"fixed" in:"sgd|momentum|nesterov|adam|adamw|lamb|lion" help:"update rule"`
	LR            float64  `yaml:"lr" in:"(0,)" help:"learning rate, before the schedule"`
	Momentum      float64  `yaml:"momentum" in:"(0,1)" only:"optim.name=momentum|nesterov" help:"share of the last update that goes into the next"`
	Nesterov      bool     `yaml:"nesterov" only:"optim.name=momentum" help:"look ahead by one momentum step, which is optim.name=nesterov"`
	Beta1         float64  `yaml:"beta1" in:"(0,1)" only:"optim.name=adam|adamw|lamb|lion" help:"decay of the running mean of gradients"`
	Beta2         float64  `yaml:"beta2" in:"(0,1)" only:"optim.name=adam|adamw|lamb|lion" help:"decay of the running mean of squared gradients; for lion of the mean that it keeps, usually 0.99"`
	Eps           float64  `yaml:"eps" in:"(0,)" only:"optim.name=adam|adamw|lamb" help:"added to the denominator of the update"`
	WeightDecay   float64  `yaml:"weight_decay" in:"[0,)" help:"adamw, lamb and lion: share of the weight, times the learning rate, taken off at each step; others: weight times this is added to the gradient; unset means 0.01 with adamw, as in PyTorch, and 0 with the others; 0 means none"`
	NoDecay       string   `yaml:"no_decay" help:"parameters without weight decay: patterns of their names with * and ?, separated by commas, such as *.bias; the word vectors means all of one dimension, which are biases and scales of norms"`
	ClipNorm      float64  `yaml:"clip_norm" in:"[0,)" help:"largest global norm of the gradient, scaled down to it; 0 means no clipping"`
	ClipValue     float64  `yaml:"clip_value" in:"[0,)" help:"largest magnitude of an element of the gradient, cut off at it; 0 means no clipping"`
	SkipNonFinite bool     `yaml:"skip_nonfinite" help:"leave out a step, on all ranks, whose gradient has an infinity or a NaN, instead of ending the run"`
	EMADecay      float64  `yaml:"ema_decay" resume:"fixed" in:"[0,1)" help:"decay of a moving average of the weights, which the test is made with; 0 means none"`
	LossScale     string   `yaml:"loss_scale" help:"factor of the loss that keeps gradients in the range of narrow numbers, taken out again by the optimizer: a number, dynamic for one that adapts, 0 for none"`
	Schedule      Schedule `yaml:"schedule"`
}

// Schedule is how the learning rate changes with the step.
type Schedule struct {
	Name        string  `yaml:"name" in:"constant|cosine|step" help:"schedule after the warm-up: one rate, half a cosine down to min_lr, or steps down by gamma"`
	WarmupSteps int     `yaml:"warmup_steps" in:"[0,)" help:"steps over which the rate first rises in a line; 0 means none"`
	TotalSteps  int     `yaml:"total_steps" in:"[0,)" only:"optim.schedule.name=cosine" help:"step, warm-up included, at which the cosine ends; 0 means the end of the run"`
	MinLR       float64 `yaml:"min_lr" in:"[0,)" only:"optim.schedule.name=cosine" help:"rate at which the cosine ends"`
	StepSize    int     `yaml:"step_size" in:"[1,)" only:"optim.schedule.name=step" help:"steps between two drops of the rate"`
	Gamma       float64 `yaml:"gamma" in:"(0,1]" only:"optim.schedule.name=step" help:"factor of one drop"`
}

// Checkpoint has the settings of checkpoints, from which another run can resume.
type Checkpoint struct {
	Dir     string `yaml:"dir" hash:"-" help:"folder for checkpoints, written as checkpoint.every says, at the end, and when the run is interrupted; empty means none"`
	Every   int    `yaml:"every" hash:"-" in:"[0,)" only:"checkpoint.dir" help:"steps between two checkpoints; 0 means only at the end and when the run is interrupted"`
	Keep    int    `yaml:"keep" hash:"-" in:"[0,)" only:"checkpoint.dir" help:"newest checkpoints that stay, older ones are removed; 0 means all"`
	Async   bool   `yaml:"async" hash:"-" only:"checkpoint.dir" help:"write while the training goes on, from a copy; false means that it waits"`
	Sharded bool   `yaml:"sharded" hash:"-" only:"checkpoint.dir" help:"each rank writes a file with its part; false means that rank 0 writes one file with all"`
}

// CPU is how a rank computes on the host.
type CPU struct {
	BLAS    string `yaml:"blas" help:"matrix library: gonum is the built-in one, a path or soname (libopenblas.so.0) is loaded, auto takes a fast one if the system has it and gonum otherwise"`
	Threads int    `yaml:"threads" in:"[0,4096]" help:"threads of one rank; 0 means the cores of the host divided by its ranks"`
}

// GPU is where the libraries for GPUs are. Each is a path, or a bare soname for the loader; empty
// means that it is searched for.
type GPU struct {
	Driver  string `yaml:"driver" hash:"-" help:"library of the CUDA driver, a path or soname; empty means libcuda.so.1, searched for"`
	NVRTC   string `yaml:"nvrtc" hash:"-" help:"library that compiles kernels, a path or soname; empty means that of the newest CUDA that the driver runs, searched for"`
	NCCL    string `yaml:"nccl" hash:"-" help:"library NCCL, a path or soname; empty means that of NCCL_HOME, or libnccl.so.2, searched for"`
	NVSHMEM string `yaml:"nvshmem" hash:"-" help:"library NVSHMEM, a path or soname; empty means that of NVSHMEM_HOME, or libnvshmem_host.so.3, searched for"`
}

// Log has the settings of progress lines and records.
type Log struct {
	Every      int    `yaml:"every" hash:"-" in:"[1,)" help:"steps between two lines of progress"`
	Losses     bool   `yaml:"losses" hash:"-" help:"write the loss of every step into summary.json"`
	Trace      string `yaml:"trace" hash:"-" help:"file in the output folder for a timeline in Chrome's trace format; empty means none"`
	TraceSteps []int  `yaml:"trace_steps" hash:"-" in:"[0,)" only:"log.trace" help:"first and last step of the timeline, counted from 0"`
	Progress   string `yaml:"progress" hash:"-" in:"auto|bar|plain|none" help:"how rank 0 shows progress: auto is a bar on a terminal and plain lines elsewhere"`
}

// Default returns the default settings. They are valid, and train an MLP on MNIST.
func Default() Config {
	return Config{
		Run:    Run{Name: "default", Resume: "auto", Seed: 1, Epochs: 1, Eval: true, Device: "auto", Machine: "compiled", Precision: "fp32"},
		Launch: Launch{Bind: "none", Grace: 2 * time.Second},
		// 100 s per collective is between NCCL's watchdog in PyTorch (10 min) and the patience of a
		// person.
		Comm: Comm{Backend: "auto", TimeoutInit: time.Minute, TimeoutStep: 100 * time.Second, Check: true, WireDType: "f32", TraceEntries: 4096},
		Model: Model{
			Name: "mlp", Hidden: []int{512, 512}, Channels: []int{6, 16}, Kernel: 5,
			Layers: 2, Heads: 4, Width: 64, Context: 64, Tied: true,
		},
		Data: Data{Path: "data/mnist", GlobalBatch: 128, Shuffle: true, AccumSteps: 1},
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

// OutputDir is the folder of the run's results: run.output_dir, or runs/<run.name>.
func (c *Config) OutputDir() string {
	if c.Run.OutputDir != "" {
		return c.Run.OutputDir
	}
	return filepath.Join("runs", c.Run.Name)
}

// LogDir is the folder for the output of started ranks: launch.log_dir, or logs in the run's output
// folder.
func (c *Config) LogDir() string {
	if c.Launch.LogDir != "" {
		return c.Launch.LogDir
	}
	return filepath.Join(c.OutputDir(), "logs")
}

// BucketBytes is ddp.bucket_mb in bytes, at least 1.
func (d DDP) BucketBytes() int64 { return mebibytes(d.BucketMB) }

// FirstBucketBytes is ddp.first_bucket_mb in bytes, at least 1 and at most BucketBytes.
func (d DDP) FirstBucketBytes() int64 { return min(mebibytes(d.FirstBucketMB), d.BucketBytes()) }

// HeapBytes is comm.heap_mb in bytes; 0 means automatic.
func (c Comm) HeapBytes() int64 { return int64(c.HeapMB) << 20 }

// CosineSteps is how long the cosine is, from the end of the warm-up to total_steps, or to the end
// of a run of so many steps. It is at least 1, so that a run may end within its warm-up.
func (s Schedule) CosineSteps(runSteps int) int {
	return max(1, cmp.Or(s.TotalSteps, runSteps)-s.WarmupSteps)
}

func mebibytes(mb float64) int64 { return max(1, int64(mb*(1<<20))) }
