"""The Chinese words of the table in README.zh.md, an entry for each example.

An example that has none stands there in English, and a test names it.
"""
from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
  """What takes the place of the docstring's words."""
  shows: str  # the first sentence
  notes: str  # the section of the notes
  mechanism: str


# By the path below examples/, as a row may have several files.
WORDS = {
  "book/hello_server.py": Words(
    "在本进程内启动只有一个任务的服务器，并让会话在它上面运行自己的图。",
    "笔记 000 第 7 节“单设备（简单本地会话）”",
    "本地服务器"),
  "book/gpu_memory.py": Words(
    "多个进程共用一块 GPU 显存的三种办法，以及一个完全看不到 GPU 的 ps。",
    "笔记 000 第 2 节（会话占用的显存）",
    "GPU 选项"),
  "book/simple_placement.py": Words(
    "两个操作固定在 CPU 上，一个不固定：分别写了什么，又实际运行在哪里。",
    "笔记 000 第 4 节 (2)；004 第 1.5.1 节",
    "`tf.device`"),
  "book/placement_by_op_type.py": Words(
    "用设备函数把变量放到 CPU 上，其余放到 GPU 上。",
    "笔记 000 第 4 节 (3)",
    "设备函数"),
  "book/placement_log.py": Words(
    "每个操作打印一行：它运行在哪个设备上。",
    "笔记 000 第 4 节 (4)",
    "`log_device_placement`"),
  "book/missing_kernel.py": Words(
    "整数变量不能放到 GPU 上：三种解决办法，以及笔记漏掉的一步。",
    "笔记 000 第 4 节之 5（操作未必在每种设备上都有内核）",
    "操作的内核与软放置（soft placement）"),
  "book/thread_pools.py": Words(
    "同时能运行几个操作，由谁决定：进程的线程池。",
    "笔记 000 第 6 节“并行操作”",
    "inter-op 线程与 intra-op 线程"),
  "book/control_dependencies.py": Words(
    "一个操作等待另外两个操作，虽然并不需要它们的结果。",
    "笔记 000 第 6 节“并行操作”末尾",
    "控制依赖"),
  "book/cluster_of_five.py": Words(
    "两个 ps 和三个 worker：连到其中一个任务的会话，以及固定到其他任务的操作。",
    "笔记 000 第 8 节“TensorFlow Cluster”及其第一份代码",
    "集群、作业、任务；客户端所连的主服务（master）；按作业、任务、设备固定操作"),
  "book/variables_over_ps.py": Words(
    "变量轮流放到各个 ps 上，其余留在 worker 上；内层的设备与外层合并。",
    "笔记 000 第 8 节及其第一份代码；004 末尾的问题",
    "`replica_device_setter` 是一个设备函数；其内层的 `tf.device` 如何与它的结果合并"),
  "book/two_clients.py": Words(
    "两个客户端，一个变量：状态属于集群，而不属于创建它的会话。",
    "笔记 000 第 9 节（集群中的变量由各会话共用）",
    "ps 上的变量与服务器同寿命；对照：本地会话"),
  "book/apart_by_variable_scope.py": Words(
    "同一集群上的两个问题，用变量作用域隔开。",
    "笔记 000 第 10 节（不共用变量），第一种办法",
    "服务器上的变量按名字查找，而作用域改变名字"),
  "book/apart_by_container.py": Words(
    "同一集群上的两个问题，用容器隔开；容器可以按名字重置。",
    "笔记 000 第 10 节（不共用变量），第二种办法",
    "容器"),
  "book/reset_under_a_dequeue.py": Words(
    "有人正阻塞在容器中的队列上时重置该容器：在 TensorFlow 2.x 上 ps 会崩溃。",
    "笔记 000 第 10 节（重置；笔记和书都没有提醒这一点）",
    "`tf.Session.reset` 与尚未返回的 `dequeue_many`"),
  "book/loader_and_trainer.py": Words(
    "两个客户端，一个队列：一个装载数据，另一个同时训练。",
    "笔记 000 第 12 节（异步通信与流水线）",
    "ps 上带共享名的队列，经由两个主服务使用"),
  "book/queue_of_tuples.py": Words(
    "元素为元组的队列：一个数和一个矩阵。",
    "笔记 000 第 12 节及其关于队列的代码",
    "同一队列中类型和形状各异的分量"),
  "book/closing_a_queue.py": Words(
    "关闭队列：什么还能用，什么会等待，元素又去了哪里。",
    "笔记 000 第 12 节（关闭队列的作用）",
    "数据流的结束；`close`，带与不带 `cancel_pending_enqueues`"),
  "book/shuffle_queue.py": Words(
    "RandomShuffleQueue：随机组成批次，并留有保证随机性的余量。",
    "笔记 000 第 12 节（RandomShuffleQueue）",
    "`min_after_dequeue`：必须留在队列中的元素个数"),
  "book/padding_queue.py": Words(
    "PaddingFIFOQueue：大小不同的元素组成一个批次，用零补齐。",
    "笔记 000 第 12 节（PaddingFIFOQueue）",
    "创建队列时未知的维度，在取出批次时补齐"),
  "book/preload_into_variable.py": Words(
    "内存装得下的数据，一次装入一个不属于模型的变量。",
    "笔记 000 第 12 节（边训练边加载数据）；书中的预加载数据",
    "不参与训练、不在任何集合（collection）中的变量，由占位符赋值"),
  "book/csv_fields.py": Words(
    "decode_csv：每个字段的默认值决定其类型，并代替缺失的值。",
    "笔记 000 第 11 节“用 tf.decode_csv 解析 CSV”",
    "`record_defaults`"),
  "book/csv_by_queues.py": Words(
    "用两个队列和一个读取器读 CSV 文件，全部手工运行：队列运行器在线程里做的就是这些。",
    "笔记 000 第 12 节（旧方法：Reader 与队列）",
    "文件名队列、TextLineReader、乱序队列；两个队列先后关闭而结束"),
  "book/csv_by_queue_runners.py": Words(
    "同样的流水线，放到线程里：QueueRunner 填队列，主线程同时训练。",
    "笔记 000 第 12 节（QueueRunner 和 Coordinator；以及函数封装）",
    "QueueRunner 为它的每个操作开一个线程；Coordinator 让所有线程结束"),
  "book/queue_timeouts.py": Words(
    "队列操作的时间限制：怎样设置，留下什么后果，以及一种不丢元素的做法。",
    "笔记 000 第 12 节（设置队列操作的超时）",
    "会话的 `operation_timeout_in_ms`，单次运行的 `RunOptions(timeout_in_ms)`"),
  "book/dataset_batches.py": Words(
    "数据集先重复再切成批次，由迭代器依次给出。",
    "笔记 000 第 13 节“加载数据（DATA API）”之 1、2",
    "`repeat` 与 `batch`"),
  "book/dataset_get_next.py": Words(
    "每次运行，每个 `get_next()` 操作只让迭代器前进一次，不论其输出被用多少次。",
    "笔记 000 第 13 节“加载数据（DATA API）”之 3",
    "`Iterator.get_next`"),
  "book/dataset_interleave.py": Words(
    "轮流从几个数据集中取元素：`interleave`。",
    "笔记 000 第 13 节“加载数据（DATA API）”之 4",
    "`Dataset.interleave`"),
  "book/dataset_csv.py": Words(
    "用数据集读 CSV 记录：没有队列，没有线程，也没有协调器。",
    "笔记 000 第 13 节“加载数据（DATA API）”之 5",
    "`TextLineDataset`、`skip`、`map`"),
  "book/producers_and_batchers.py": Words(
    "旧式输入流水线的四个 producer 和四个 batch 函数。",
    "笔记 000 第 14 节“其他 API”（只列了名字）",
    "producer 把名字、数或切片填入队列；batch 函数的队列把一条流水线的输出组成批次，"
    "`_join` 则合并几条"),
  "book/network_a_task.py": Words(
    "每个任务一个网络：同一个训练好的网络放到 n 个任务上，每秒能做更多的预测。",
    "笔记 000 第 15 节“数据并行方案”之 1，一台设备一个神经网络",
    "什么也不共享：每个任务都有完整的网络，客户端把每个请求交给空闲的那一个"),
  "book/ensemble_in_graph.py": Words(
    "一个图中的集成：三个网络各占一个设备，取预测的平均值。",
    "笔记 000 第 15 节“数据并行方案”之 2，图内复制的集成",
    "一个图，一个客户端；每个网络在自己的设备上，汇总在另一个设备上"),
  "ensemble_queues.py": Words(
    "由队列连接的多进程集成：三个网络中有一个不在时会怎样。",
    "笔记 000 第 15 节“数据并行方案”之 3，图间复制的集成",
    "输入端 → 每个网络一个输入队列 → 网络 → 每个网络一个预测队列 → 带超时的汇总端"),
  "model_parallel.py": Words(
    "切分值得吗？三个网络，各自先在一个设备上，再切分到两个设备上。",
    "笔记 000 第 16 节“模型并行方案”",
    "两个全连接层各占一个设备；一个全连接层按列对半分到两个设备；两个循环层各占一个设备"),
  "book/in_graph_synchronous.py": Words(
    "图内复制，同步更新：一个客户端，一个图，每个 worker 上一个塔（tower），一次更新。",
    "笔记 000 第 17、19 节；001“Replicated training”",
    "塔固定到各任务，取梯度的平均值，只用一个优化器"),
  "book/in_graph_asynchronous.py": Words(
    "图内复制，异步更新：一个图，每个副本有自己的优化器和线程。",
    "笔记 000 第 19 节“并行化方案”",
    "一个客户端，它的各个线程各自随时运行一个训练步"),
  "book/between_graph_asynchronous.py": Words(
    "图间复制，异步更新：每个 worker 都是客户端，有自己的图。",
    "笔记 000 第 19 节“并行化方案”；001“Replicated training”",
    "同一 ps 上同名即同一变量，不论图由谁构建"),
  "book/synchronous_replicas.py": Words(
    "图间复制，同步更新：每次更新恰好用每个 worker 的一个梯度。",
    "笔记 000 第 19 节“并行化方案”；004 第 1.5 节“同步训练”",
    "SyncReplicasOptimizer"),
  "book/synchronous_stock.py": Words(
    "TensorFlow 自带的 SyncReplicasOptimizer：累加器、令牌、备用副本，以及它的陷阱。",
    "笔记 000 第 19 节“并行化方案”；004 第 1.5 节“同步训练”",
    "每个变量的梯度进入一个累加器（笔记和书说是队列，那是早先的做法）"),
  "exercises/hyper_parameter_search.py": Words(
    "八个超参数不同的网络，在四个任务的集群上并行训练。",
    "笔记 000 所依据的那一章，习题 8；笔记第 15 节（每个设备一个网络）",
    "同一个客户端程序 one_network.py，对每组超参数运行一次，用标志给出服务器、设备、容器和超参数"),
  "exercises/ensemble_of_three.py": Words(
    "把搜索中最好的三个网络组成一个集成（ensemble），在训练它们的地方直接使用。",
    "笔记 000 所依据的那一章，习题 9；笔记第 15 节（图内集成）",
    "在训练时的容器、任务和名字下重新构建网络，不运行任何初始化"),
  "exercises/three_schemes.py": Words(
    "同一个问题，分别异步训练、同步训练和垂直切分：达到目标所需的时间。",
    "笔记 000 所依据的那一章，习题 10；笔记第 16、17、19 节",
    "两个异步更新的副本；两个同步更新的副本；"
    "一个网络，其隐藏层的列分放在两个 worker 上；达到目标时停表"),
  "book/stale_gradients.py": Words(
    "减轻梯度过期影响的六种办法：各自最终的损失，以及所用的时间。",
    "笔记 000 第 17 节“数据并行化”之 2（异步更新）",
    "梯度的“年龄”（age），即从读取变量到应用更新之间他人所做的更新次数，以及针对它的各种策略"),
  "book/less_bandwidth.py": Words(
    "缓解带宽饱和的各种办法：各节省多少字节，准确率损失多少。",
    "笔记 000 第 17 节“数据并行化”之 3 和 4（带宽饱和）",
    "每一步在 ps 与 worker 之间传输的数据，以及怎样减少它"),
  "legacy_trainer.py": Words(
    "照 TensorFlow 分布式部署指南写的训练程序，自带命令行标志和训练循环。",
    "笔记 001（依照该指南）；004 第 1.1 节“创建 cluster 和 Server”",
    "所有任务共用一个文件；每个任务是一个进程：等待（join）的 ps，或训练的 worker"),
  "programs/mnist_replica.py": Words(
    "MNIST replica 程序：一个隐藏层，Adam，异步或同步。",
    "笔记中分布式 MNIST 链接所指的程序；004 第 1.1 节（chief 与其他 worker）",
    "图间复制"),
  "programs/ps_that_ends.py": Words(
    "worker 都完成后自行结束的 ps：worker 通过队列报告。",
    "笔记 001（`server.join()` 等待 worker）",
    "TensorFlow 服务器的 `join()` 永不返回，因此每个作业都会留下 ps 进程"),
  "programs/hosts_in_the_code.py": Words(
    "主机地址写在代码里的训练程序，每个 worker 各写自己的摘要。",
    "笔记 004 参考资料 [9]",
    "最小的分布式程序只有作业和编号两个参数：任务在哪里运行，写在 HOSTS 中"),
  "programs/synchronous_with_extras.py": Words(
    "较深网络的同步训练，以及通常与之配套的各种做法。",
    "笔记 004 第 1.5 节“同步训练”：SyncReplicasOptimizer、设备函数、滑动平均、梯度裁剪、"
    "chief 的摘要",
    "学习率随全局步数衰减（每 100 步减半：0.1、0.05、0.025），每合并两个梯度更新一次，算一步；"
    "*平均*梯度裁剪到范数 5；所有变量的滑动平均在 ps 上随之更新，评估时用的就是它"),
  "programs/towers_on_one_machine.py": Words(
    "一台机器各设备上的塔：平均梯度，共享变量，以及三种失败。",
    "笔记 004 参考资料 [5]（多 GPU 的 CIFAR-10 训练程序）和第 1.5 节（CPU 上的 `add_n`）；"
    "003“单机多 GPU 训练”",
    "变量在 CPU 上，每个设备一个塔，各算半个批次，梯度的平均值回到 CPU 上计算"),
  "programs/clones_and_replicas.py": Words(
    "由一份配置得到克隆和副本：2 个克隆、2 个 worker、2 个 ps 时，一切放在哪里。",
    "笔记 004 第 1.1、1.6 节（映射到设备是否用 slim）和参考资料 [7]：每节点一个 worker，"
    "每 GPU 一个克隆，内部同步，之间异步",
    "副本（replica）是一个 worker，克隆（clone）是它的一个设备"),
  "programs/local_or_distributed.py": Words(
    "同一个脚本，本地或分布式：由环境变量决定。",
    "笔记 004 参考资料 [9]，以及带 ClusterSpec 的程序如何移植的问题",
    "调度系统为每个任务设置 JOB_NAME、TASK_INDEX、PS_HOSTS 和 WORKER_HOSTS"),
  "programs/dataset_map.py": Words(
    "由 TensorFlow 操作组成的函数，作用于数据集的每个元素。",
    "笔记 002 末尾，数据集的常用变换",
    "`Dataset.map`"),
  "programs/hooks_clipping_averages.py": Words(
    "钩子、梯度裁剪、滑动平均：训练程序的三个小部件。",
    "笔记 004 第 1.4 节（SessionRunHook）和第 1.5 节（clip_by_global_norm、"
    "ExponentialMovingAverage、moving_average_variables）",
    "按全局范数裁剪，滑动平均，钩子的调用次序"),
  "programs/barrier_of_queues.py": Words(
    "由 n 个共享队列组成的屏障：所有人到齐之前谁也不往下走。",
    "笔记 000 第 12 节（按 `shared_name` 在会话间共享队列）；004 关于任务如何保持同步的问题",
    "n 个任务各有一个位于 ps 上的队列；到达者给其他每个队列放一个令牌，再从自己的队列取 n - 1 个"),
  "notes/one_job_two_tasks.py": Words(
    "一个作业，两个任务，各有一个服务器：最小的集群。",
    "笔记 001“创建一个 cluster”；004 第 1.1.1 节（ClusterSpec）",
    '`{"local": [a, b]}` 中既没有 ps 也没有 worker'),
  "notes/workers_without_ps.py": Words(
    "只有 worker，没有 ps：每个 worker 都有全部变量，梯度在它们之间归约。",
    "笔记 004 第 1.2 节（无 PS 模式：all-reduce；笔记提到 MPI、NCCL、Horovod）",
    "TensorFlow 自带的集合通信，两个版本都有"),
  "notes/what_travels.py": Words(
    "TensorFlow 在任务之间插入了什么：图的各个分区及其 Send 和 Recv。",
    "笔记 001“在你的模型中指定分布式设备”及其图分区的插图",
    "主服务在设备边界处切开图，在每条切断的边的一端放 Send，另一端放 Recv"),
  "notes/feeding_and_records.py": Words(
    "feed 与 TFRecordDataset 给出相同的批次；边训练边装载能省多少时间。",
    "笔记 004 第 1.3 节“I/O”；000 第 12 节（训练一个批次的同时准备下一个）",
    "相同的样本，一次作为客户端 feed 的数组，一次作为由操作读取的文件记录：解析并组成批次"),
  "notes/monitored_session_limits.py": Words(
    "Saver、Scaffold 和 MonitoredTrainingSession，以及后者不能做的三件事。",
    "笔记 004 第 1.4 节",
    "MonitoredTrainingSession 创建 Scaffold（内含 Saver），启动队列运行器，恢复或初始化，"
    "并且自己保存检查点"),
  "notes/session_options.py": Words(
    "会话选项：ConfigProto 里写了什么，以及用 add_n 汇总几个设备的结果。",
    "笔记 004 第 1.5.3 节“tf.Session 的配置参数”",
    "选项是一个 protocol buffer，设成默认值的选项是看不见的"),
  "notes/reuse_of_variables.py": Words(
    "异步副本共享哪些变量，以及泄漏到作用域之外的重用。",
    "笔记 004 第 2 节“关键问题”：计算图能否重用变量；重用前要先定义 VariableScope",
    "跨图按 ps 上的名字共享，图内按作用域重用"),
  "notes/when_not_to_parallelise.py": Words(
    "小模型、大量数据：一个进程远远快过带 ps 的 1、2、4 个 worker。",
    "笔记 000 第 17 节之 3（带宽饱和：模型小而训练集大时，最好留在一台机器上）",
    "只有 650 个参数的 softmax，图间复制，异步更新；样本随用随取，没有尽头"),
}
