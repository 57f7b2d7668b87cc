"""The Chinese words of the table in README.zh.md: for each example the sentence that it shows.

An example without words stands there in English, and a test names it.
"""

# By the path below examples/, as a number may have several files.
WORDS = {
  "coordinator.py":
    "一个协调者把训练步骤分派给三个 worker：查词、嵌入、回答。",
  "fashion_images.py":
    "由协调者训练的图像分类器：每轮之后由它自己评估，并根据结果调整。",
  "uneven_workers.py":
    "文件长短不一，worker 快慢不一：每一轮都能干净结束，每一行恰好用一次。",
  "book/hello_server.py":
    "在本进程内启动只有一个任务的服务器，并让会话在它上面运行自己的图。",
  "book/gpu_memory.py":
    "多个进程共用一块 GPU 显存的三种办法，以及一个完全看不到 GPU 的 ps。",
  "book/simple_placement.py":
    "两个操作指定在 CPU 上，一个不指定：请求的设备与实际运行的设备。",
  "book/placement_by_op_type.py":
    "用设备函数把变量放到 CPU 上，其余放到 GPU 上。",
  "book/placement_log.py":
    "每个操作打印一行：它运行在哪个设备上。",
  "book/missing_kernel.py":
    "整数变量不能放到 GPU 上：三种解决办法，以及容易忘记的一步。",
  "book/thread_pools.py":
    "进程的线程池：决定同时能运行多少个操作。",
  "book/control_dependencies.py":
    "一个操作等待另外两个操作，虽然并不需要它们的结果。",
  "book/cluster_of_five.py":
    "两个 ps 和三个 worker：连到其中一个任务的会话，以及固定到其他任务的操作。",
  "book/variables_over_ps.py":
    "变量轮流放到各个 ps 上，其余留在 worker 上；内层的设备与外层合并。",
  "book/two_clients.py":
    "两个客户端，一个变量：状态属于集群，而不属于创建它的会话。",
  "book/apart_by_variable_scope.py":
    "同一集群上的两个问题，用变量作用域隔开。",
  "book/apart_by_container.py":
    "同一集群上的两个问题，用容器隔开；容器可以按名字重置。",
  "book/reset_under_a_dequeue.py":
    "客户端还阻塞在容器内的队列上时重置该容器：在 TensorFlow 2.x 上 ps 会崩溃。",
  "book/loader_and_trainer.py":
    "两个客户端，一个队列：一个装载数据，另一个同时训练。",
  "book/queue_of_tuples.py":
    "元素为元组的队列：一个数和一个矩阵。",
  "book/closing_a_queue.py":
    "关闭队列：哪些调用仍可用，哪些会阻塞，剩余元素如何处理。",
  "book/shuffle_queue.py":
    "RandomShuffleQueue：随机组成批次，并留有保证随机性的余量。",
  "book/padding_queue.py":
    "PaddingFIFOQueue：大小不同的元素组成一个批次，用零补齐。",
  "book/preload_into_variable.py":
    "内存装得下的数据，一次装入一个不属于模型的变量。",
  "book/csv_fields.py":
    "decode_csv：每个字段的默认值决定其类型，并代替缺失的值。",
  "book/csv_by_queues.py":
    "用两个队列和一个 reader 手动读取 CSV 文件：这正是 QueueRunner 在线程里做的事。",
  "book/csv_by_queue_runners.py":
    "同样的流水线，放到线程里：QueueRunner 填队列，主线程同时训练。",
  "book/queue_timeouts.py":
    "队列操作的时间限制：怎样设置，留下什么后果，以及一种不丢元素的做法。",
  "book/dataset_batches.py":
    "数据集先重复再分批，由迭代器逐批返回。",
  "book/dataset_get_next.py":
    "每次运行，每个 `get_next()` 操作只让迭代器前进一次，不论其输出被用多少次。",
  "book/dataset_interleave.py":
    "轮流从几个数据集中取元素：`interleave`。",
  "book/dataset_csv.py":
    "用数据集读 CSV 记录：没有队列，没有线程，也没有协调器。",
  "book/producers_and_batchers.py":
    "旧式输入流水线的四个 producer 和四个 batch 函数。",
  "book/network_a_task.py":
    "每个任务一个网络：同一个训练好的网络放到 n 个任务上，每秒能做更多的预测。",
  "book/ensemble_in_graph.py":
    "一个图中的集成：三个网络各占一个设备，取预测的平均值。",
  "book/ensemble_by_queues.py":
    "用队列连接的集成的最简形式：一个输入者，几个网络，一个带超时的汇总者。",
  "ensemble_queues.py":
    "用队列连接的多进程集成：三个网络中有一个失效时会怎样。",
  "fill_queue.py":
    "一个客户端向队列写入样本，另外两个取出样本训练，最后全部自行结束。",
  "model_parallel.py":
    "切分值得吗？四个网络，各自先在一个设备上，再切分到两个设备上。",
  "book/in_graph_synchronous.py":
    "图内复制，同步更新：一个客户端，一个图，每个 worker 上一个塔（tower），一次更新。",
  "book/in_graph_asynchronous.py":
    "图内复制，异步更新：一个图，每个副本有自己的优化器和线程。",
  "book/between_graph_asynchronous.py":
    "图间复制，异步更新：每个 worker 都是客户端，有自己的图。",
  "book/synchronous_replicas.py":
    "图间复制，同步更新：每次更新恰好用每个 worker 的一个梯度。",
  "book/synchronous_stock.py":
    "TensorFlow 自带的 SyncReplicasOptimizer：累加器、令牌、备用副本，以及它的陷阱。",
  "exercises/hyper_parameter_search.py":
    "八个超参数不同的网络，在四个任务的集群上并行训练。",
  "exercises/ensemble_of_three.py":
    "把搜索中最好的三个网络组成一个集成（ensemble），在训练它们的地方直接使用。",
  "exercises/three_schemes.py":
    "同一个问题，分别异步训练、同步训练和垂直切分：达到目标所需的时间。",
  "book/stale_gradients.py":
    "减轻梯度过期影响的六种办法：各自最终的损失，以及所用的时间。",
  "book/less_bandwidth.py":
    "缓解带宽饱和的各种办法：各节省多少字节，准确率损失多少。",
  "legacy_trainer.py":
    "按 TensorFlow 分布式部署指南编写的训练程序，自带命令行参数和训练循环。",
  "programs/mnist_replica.py":
    "MNIST replica 程序：一个隐藏层，Adam，异步或同步。",
  "programs/ps_that_ends.py":
    "worker 都完成后自行结束的 ps：worker 通过队列报告。",
  "programs/hosts_in_the_code.py":
    "主机地址写在代码里的训练程序，每个 worker 各写自己的摘要。",
  "programs/synchronous_with_extras.py":
    "较深网络的同步训练：学习率衰减、梯度裁剪和滑动平均。",
  "programs/towers_on_one_machine.py":
    "一台机器各设备上的塔：平均梯度，共享变量，以及三种失败。",
  "programs/clones_between_workers.py":
    "两个 worker，各有两个克隆：worker 内同步，worker 之间异步。",
  "programs/clones_and_replicas.py":
    "用一份配置生成各副本中的克隆：变量和操作各放在哪个设备上，以及一个照此训练的作业。",
  "programs/local_or_distributed.py":
    "同一个脚本，本地或分布式：由环境变量决定。",
  "programs/dataset_map.py":
    "由 TensorFlow 操作组成的函数，作用于数据集的每个元素。",
  "programs/hooks_clipping_averages.py":
    "手动执行一步并裁剪梯度、滑动平均、钩子：许多训练程序共有的三个部分。",
  "programs/by_tf_config.py":
    "从 TF_CONFIG 读取自身角色的训练程序：一个 ps、一个 chief 和一个 worker。",
  "programs/balanced_by_bytes.py":
    "按字节数把变量分到各个 ps：GreedyLoadBalancingStrategy 与通常的轮流放置对照。",
  "programs/barrier_of_queues.py":
    "由 n 个共享队列组成的屏障：所有任务到齐之前，都不会继续。",
  "notes/one_job_two_tasks.py":
    "一个作业，两个任务，各有一个服务器：最小的集群。",
  "strategies.py":
    "TensorFlow 2 的各种分布策略，在图与会话中逐一用对应的做法实现。",
  "notes/workers_without_ps.py":
    "只有 worker，没有 ps：每个 worker 都有全部变量，梯度在它们之间归约。",
  "notes/what_travels.py":
    "任务之间的 Send 和 Recv：图如何分区，哪些值会跨任务传输。",
  "notes/feeding_and_records.py":
    "feed 与 TFRecordDataset 给出相同的批次；边训练边装载能省多少时间。",
  "notes/monitored_session_limits.py":
    "Saver、Scaffold 和 MonitoredTrainingSession，以及这种会话不支持的三种调用。",
  "notes/session_options.py":
    "会话选项：ConfigProto 的文本形式，以及对多个设备上的乘积求和。",
  "notes/reuse_of_variables.py":
    "异步副本共享哪些变量，以及泄漏到作用域之外的重用。",
  "notes/loss_curves.py":
    "同步与异步的损失曲线：前者平稳下降，后者抖动大。",
  "notes/when_not_to_parallelise.py":
    "小模型、大量数据：一个进程远远快过带 ps 的 1、2、4 个 worker。",
}
